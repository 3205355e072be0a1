# frozen_string_literal: true

# Tests with a real redlockd -dev, whose socket is $REDLOCK_SOCKET.
require "logger"
require "minitest/autorun"
require "socket"
require "stringio"
require "timeout"
require "tmpdir"

require "redlockd"
require_relative "scheduler"

ROUNDS = Integer(ENV.fetch("REDLOCKD_ROUNDS", "300"))

class WithClient < Minitest::Test
  def setup
    @c = Redlockd::Client.new
    @key = "ruby-#{name}"
  end

  def teardown
    @c.close
  end

  # Another client gets the lock at once, after the release that may be in progress.
  def assert_free(key = @key)
    other = Redlockd::Client.new
    other.lock(key, wait: 10).release
  ensure
    other.close
  end

  def assert_held(key = @key)
    other = Redlockd::Client.new
    assert_nil(other.try_lock(key))
  ensure
    other.close
  end

  def await
    deadline = Redlockd::Wire.clock + 120
    until yield
      flunk "it did not happen within two minutes" if Redlockd::Wire.clock > deadline
      Thread.pass
    end
  end

  def await_waiter(key = @key)
    await { @c.list.any? { |line| line["state"] == "waiting" && line["lock"] == key } }
  end

  # exits_well runs a block in a child.
  def exits_well
    pid = fork do
      status = 1
      Timeout.timeout(120) { status = 0 if yield }
    ensure
      exit!(status)
    end
    assert_predicate Process.wait2(pid)[1], :success?
  end
end

class Locks < WithClient
  def test_block
    kept = nil
    result = @c.lock(@key, wait: 5) do |lease|
      kept = lease
      assert_operator lease.fence, :>, 0
      assert_equal [@key], lease.names
      refute_predicate lease, :lost?
      assert_operator lease.remaining, :>, 1
      assert_same lease, lease.check
      held = assert_raises(Redlockd::Held) { @c.lock(@key, wait: 0) }
      assert_equal Process.pid.to_s, held.fields["pid"]
      assert_match(/lock "#{@key}".*held by/, held.message)
      refute_includes lease.inspect, lease.id
      :result
    end
    assert_equal :result, result
    assert_free
    assert_equal 0, kept.remaining
    assert_raises(Redlockd::NotHeld) { kept.release }
    assert_raises(Redlockd::NotHeld) { kept.check }
  end

  def test_released_in_the_block
    @c.lock(@key) do |lease|
      lease.release
      assert_free
    end
  end

  def test_options
    @c.lock(@key, "other", ttl: 3, note: "a b", guard: 0.5, max: 60, linger: 0) do |lease|
      assert_equal [@key, "other"], lease.names
      assert_operator lease.remaining, :<=, 3
      assert_includes @c.list.map { |line| line["note"] }, "a b"
    end
    @c.lock(@key, mode: :shared) { @c.lock(@key, mode: "shared", wait: 0) { nil } }
    @c.lock("slots", slots: 2, wait: 0) do |one|
      @c.lock("slots", slots: 2, wait: 0) do |two|
        assert_equal [1, 2], [one.slot, two.slot].sort
        assert_nil @c.try_lock("slots", slots: 2)
      end
    end
    @c.lock(@key, hold: "pid", wait: 0) { assert_raises(Redlockd::Already) { @c.lock(@key, hold: "pid", wait: 0) } }
    @c.lock(@key, hold: "ttl", ttl: 5) { |lease| assert_operator lease.extend(ttl: 9).remaining, :>, 6 }
    @c.lock(@key, beat: 30) do |lease|
      lease.beat.downgrade
      @c.lock(@key, mode: "shared", wait: 0) { nil }
    end
    @c.lock("min of #{@key}", min: 30).release
    assert_held "min of #{@key}"
  end

  def test_try_lock
    assert_equal 5, @c.try_lock(@key) { 5 }
    @c.lock(@key) do
      assert_nil @c.try_lock(@key) { flunk }
      assert @c.locked?(@key)
    end
    refute @c.locked?(@key)
  end

  def test_questions
    @c.lock(@key) do
      assert_equal [@key, Process.pid.to_s], @c.who(@key).first.values_at("lock", "pid")
      status, nodes = @c.status
      assert_equal ["3", 5], [status["quorum"], nodes.size]
      assert_includes status["text"], "locks work"
      assert_equal "1", @c.force(@key)["n"]
    end
  rescue Redlockd::Lost => e
    assert_equal "forced", e.fields["reason"]
  else
    flunk "the block ended without Lost"
  end

  def test_loss
    told = Thread::Queue.new
    error = assert_raises(Redlockd::Lost) do
      @c.lock(@key, max: 0.3, on_lost: told.method(:push)) do |lease|
        assert_same lease, told.pop
        assert_predicate lease, :lost?
        assert_raises(Redlockd::Lost) { lease.check }
      end
    end
    assert_match(/holding time/, error.message)
  end

  def test_exception_of_the_block_counts
    assert_raises(ZeroDivisionError) do
      @c.lock(@key, max: 0.2) do |lease|
        await { lease.lost? }
        1 / 0
      end
    end
    assert_raises(ZeroDivisionError) { @c.lock(@key) { 1 / 0 } }
    assert_free
    assert_equal(7, @c.lock(@key) { break 7 })
    catch(:out) { @c.lock(@key) { throw :out } }
    assert_free
  end

  def test_close
    lease = @c.lock(@key)
    waiter = Thread.new { assert_raises(Redlockd::Closed) { @c.lock(@key) } }
    await_waiter
    @c.close
    waiter.value
    assert_predicate lease, :lost?
    assert_free
    assert_raises(Redlockd::Closed) { @c.lock(@key) }
  end

  def test_release_wait
    Dir.mktmpdir do |dir|
      UNIXServer.open(path = "#{dir}/s") do |server|
        daemon = Thread.new do
          s = server.accept
          tag = s.gets.split.first
          s.puts "#{tag} OK clock=#{(Redlockd::Wire.clock * 1000).to_i}"
          tag = s.gets.split.first
          s.puts "#{tag} OK lock=a lease=L1 fence=7 ttl=60000 deadline=#{(Redlockd::Wire.clock * 1000).to_i + 60_000}"
          s # hangs
        end
        log = StringIO.new
        c = Redlockd::Client.new(path, patience: 0.2, logger: Logger.new(log))
        c.lock("a").release(wait: 0.05)
        assert_match(/still being released/, log.string)
        assert_raises(Redlockd::Unavailable) { c.list }
        daemon.value.close
      ensure
        c&.close
      end
    end
  end
end

class BadInput < WithClient
  def test_names_and_options
    [
      [TypeError, /pass a String/, [5], {}],
      [Redlockd::Invalid, /not UTF-8/, ["\xff"], {}],
      [Redlockd::Invalid, /1 to 200/, [""], {}],
      [Redlockd::Invalid, /1 to 200/, ["é" * 101], {}],
      [Redlockd::Invalid, /1 to 100/, [], {}],
      [Redlockd::Invalid, /3000/, Array.new(9) { |i| "%" * 199 + i.to_s }, {}],
      [TypeError, /wait: 5 or wait: 0.25/, ["a"], { wait: "5s" }],
      [TypeError, /seconds/, ["a"], { wait: true }],
      [Redlockd::Invalid, /nil waits without a bound/, ["a"], { wait: -1 }],
      [Redlockd::Invalid, /seconds/, ["a"], { wait: Float::NAN }],
      [Redlockd::Invalid, /daemon's default/, ["a"], { ttl: Float::INFINITY }],
      [Redlockd::Invalid, /"exclusive", "shared"/, ["a"], { mode: "read" }],
      [Redlockd::Invalid, /"conn", "ttl", "pid"/, ["a"], { hold: :forever }],
      [Redlockd::Invalid, /hold: "pid"/, ["a"], { pid: 5 }],
      [TypeError, /whole number/, ["a"], { slots: 1.5 }],
      [Redlockd::Invalid, /1 to 1000/, ["a"], { slots: 0 }],
      [Redlockd::Invalid, /at most 200/, ["a"], { note: "x" * 201 }],
      [TypeError, /pass a Proc/, ["a"], { on_lost: 5 }],
      [ArgumentError, /no option retain: there are wait: .*beat:/, ["a"], { retain: 1 }],
      [ArgumentError, /ttl: is the lease time/, ["a"], { expiration: 1 }],
    ].each do |kind, hint, names, options|
      error = assert_raises(kind, "#{names} #{options}") { @c.lock(*names, **options) }
      assert_match hint, error.message
    end
  end

  def test_refused_by_the_daemon
    [["a\nb", {}], ["redlockd:x", {}], ["job", { ttl: 0.01 }], ["job", { min: 1, hold: "ttl" }]].each do |key, options|
      assert_raises(Redlockd::Invalid) { @c.lock(key, **options) }
    end
  end

  def test_sockets
    Dir.mktmpdir do |dir|
      File.write(text = "#{dir}/text", "")
      datagram = Socket.new(:UNIX, :DGRAM)
      datagram.bind(Socket.sockaddr_un("#{dir}/datagram"))
      [
        [text, Redlockd::Invalid, /not a socket: set the path or REDLOCK_SOCKET/],
        [dir, Redlockd::Invalid, /not a socket/],
        ["#{dir}/datagram", Redlockd::Invalid, /not a stream socket/],
        ["x" * 200, Redlockd::Invalid, /at most 107/],
        ["#{dir}/none", Redlockd::Unavailable, /is redlockd running/],
      ].each do |path, kind, hint|
        c = Redlockd::Client.new(path)
        assert_match hint, assert_raises(kind, path) { c.lock("job", wait: 0.05) }.message
        c.close
      end
      datagram.close
    end
    assert_match(/a URL/, assert_raises(Redlockd::Invalid) { Redlockd::Client.new("redis://localhost") }.message)
    assert_raises(TypeError) { Redlockd::Client.new(5) }
    assert_raises(TypeError) { Redlockd::Client.new(patience: "5s") }
  end

  def test_permission
    skip "only root can become another user" unless Process.uid.zero?
    Dir.mktmpdir do |dir|
      File.chmod(0o755, dir)
      UNIXServer.open(path = "#{dir}/s") do
        File.chmod(0o600, path)
        exits_well do
          Process::Sys.setuid(65_534)
          error = assert_raises(Redlockd::Denied) { Redlockd::Client.new(path).lock("job") }
          error.message.include?("group of the socket")
        end
      end
    end
  end

  # A daemon of before HELLO, and a server of another protocol.
  def test_old_daemon
    { "@0 ERR VERB : no such request" => /VERB: no such request/, "HTTP/1.1 400 Bad Request" => /does not speak the protocol/ }.each do |answer, hint|
      Dir.mktmpdir do |dir|
        UNIXServer.open(path = "#{dir}/s") do |server|
          daemon = Thread.new { server.accept.puts(answer) }
          c = Redlockd::Client.new(path)
          assert_match hint, assert_raises(Redlockd::Error) { c.lock("job", wait: 5) }.message
          daemon.join
          c.close
        end
      end
    end
  end

  # Only a space separates words of the protocol.
  def test_white_space
    key = "prix\u00a0net\u1680a\u2028b\u3000\u0085"
    assert_raises(Redlockd::Invalid) { @c.lock(key) } # U+0085 is a control character
    key = key.chop
    @c.lock(key, note: "\u00a0note\u2029\u0085\u3000x") do |lease|
      assert_equal key, @c.who(key).first["lock"]
      assert_equal "\u00a0note\u2029\u0085\u3000x", @c.list.find { |line| line["lock"] == key }["note"]
      assert_includes assert_raises(Redlockd::Held) { @c.lock(key, wait: 0) }.message, key
      lease.check
    end
    assert_equal 0, @c.reconnects
  end

  def test_other_encodings
    @c.lock("\xe9".dup.force_encoding("ISO-8859-1")) { assert_held "é" }
  end
end

class Threads < WithClient
  def test_hundred_threads
    inside = most = 0
    Array.new(100) do
      Thread.new do
        2.times do
          @c.lock(@key) do
            inside += 1
            most = [most, inside].max
            inside -= 1
          end
        end
      end
    end.each(&:join)
    assert_equal [1, 0, 0], [most, inside, @c.reconnects]
  end

  def test_no_leak
    @c.status
    files = Dir.children("/proc/self/fd").size
    threads = Thread.list.size
    ROUNDS.times { @c.lock(@key) { nil } }
    core = @c.instance_variable_get(:@driver).core
    assert_equal([0, 0, 0], %i[@leases @tags @flight].map { |name| core.instance_variable_get(name).size })
    assert_operator core.instance_variable_get(:@timers).size, :<, 200
    assert_equal [files, threads], [Dir.children("/proc/self/fd").size, Thread.list.size]
  end

  def test_timeout_ends_a_wait
    @c.lock(@key) { assert_raises(Timeout::Error) { Timeout.timeout(0.05) { @c.lock(@key) { flunk } } } }
    assert_free
    assert_equal "0", @c.status[0]["waiters"]
  end

  # Thread#raise comes at each return of a method or block of the package. It never keeps a lock.
  def test_raise_at_each_return
    other = @c.lock("other of #{@key}")
    injected = Class.new(StandardError)
    at = 0
    loop do
      at += 1
      left = at
      trace = TracePoint.new(:return, :b_return) do |point|
        next unless point.path.include?("/redlockd") && !point.path.end_with?(__FILE__)

        left -= 1
        Thread.current.raise(injected) if left.zero?
      end
      begin
        trace.enable(target_thread: Thread.current) { @c.lock(@key, wait: 10) { nil } }
      rescue injected
        nil
      end
      break if left.positive?

      assert_free
      other.check
    end
    assert_operator at, :>, 20
    assert_equal 0, @c.reconnects
  end

  def test_calls_in_a_signal_handler
    calls = 0
    handler = lambda do |*|
      @c.lock("in the handler", wait: 10) { @c.who(@key) }
      calls += 1
    end
    before = trap("USR1", handler)
    ROUNDS.clamp(1, 100).times do |n|
      Process.kill("USR1", Process.pid)
      @c.lock(@key, wait: 10) { nil }
      await { calls > n }
    end
    assert_equal 0, @c.reconnects
  ensure
    trap("USR1", before)
  end

  # Under a Fiber scheduler a wait for a lock does not block the other fibers of the thread.
  def test_fiber_scheduler
    order = Thread::Queue.new
    Thread.new do
      Fiber.set_scheduler(TestScheduler.new)
      Fiber.schedule do
        @c.lock(@key) do
          Fiber.schedule { @c.lock(@key) { order << :second } }
          await_waiter
          order << :first
        end
      end
    end.join
    assert_equal %i[first second], [order.pop, order.pop]
  end
end

class ForkedProcesses < WithClient
  def test_child_has_no_part_in_the_lease
    @c.lock(@key) do |lease|
      exits_well do
        assert_raises(Redlockd::Lost) { lease.check }
        lease.release # does nothing
        assert_nil @c.try_lock(@key) # the same client, over a connection of its own
        @c.lock("of the child", wait: 5) { nil }
        @c.close
        lease.lost?
      end
      assert_held
      lease.check
      assert_equal 0, @c.reconnects
    end
  end

  def test_child_leaves_the_block
    pid = nil
    @c.lock(@key) do |lease|
      pid = fork
      if pid
        assert_predicate Process.wait2(pid)[1], :success?
        assert_held
        lease.check
      end
    end
    exit!(0) unless pid
    assert_free
  end

  # On Ruby 3.0 there is no Process._fork.
  def test_child_does_not_keep
    ["", "def Process.respond_to?(name, *) = name != :_fork && super\n"].each do |before|
      ["fork { puts Process.pid; sleep 600 }", "fork or (puts Process.pid; sleep 600)", "Process.fork or (puts Process.pid; sleep 600)"].each do |way|
        code = "$stdout.sync = true\n#{before}require 'redlockd'\nRedlockd::Client.new.lock(ARGV[0])\n#{way}\nsleep 600"
        parent = IO.popen([RbConfig.ruby, "-I", ENV.fetch("REDLOCKD_LIB") { File.expand_path("../lib", __dir__) }, "-e", code, @key])
        child = Integer(parent.gets)
        assert_held
        Process.kill("KILL", parent.pid)
        assert_free
        assert_equal 1, Process.kill(0, child) # it still lives
      ensure
        Process.kill("KILL", child) if child
        parent&.close
      end
    end
  end

  def test_fork_while_threads_lock
    stop = false
    threads = Array.new(4) { |n| Thread.new { @c.lock("#{@key}-#{n}") { nil } until stop } }
    10.times { exits_well { @c.lock(@key) { true } } }
  ensure
    stop = true
    threads.each(&:join)
  end
end
