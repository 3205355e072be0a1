# frozen_string_literal: true

require "socket"

module Redlockd
  # What happens to clients in the child after a fork. The leases stay with the parent, and so does the
  # connection: the child closes its copy, which would keep the locks after the parent's end.
  module Forks
    LOCK = Mutex.new # is held while a socket is made, and during a fork
    CLIENTS = ObjectSpace::WeakMap.new

    # around runs a fork, which returns nil or 0 in the child.
    def self.around
      locked = begin
        LOCK.lock
      rescue ThreadError # in a signal handler, or in the middle of the making of a socket
        nil
      end
      yield
    ensure
      LOCK.unlock if locked
    end

    def self.in_child
      CLIENTS.keys.each(&:check_fork)
    end

    # Hook is how Ruby 3.1 and later fork.
    module Hook
      def _fork
        pid = Forks.around { super }
        Forks.in_child if pid.zero?
        pid
      end
    end

    # Fork is Ruby 3.0's fork.
    module Fork
      def fork(*)
        return Forks.around { super().tap { |pid| Forks.in_child if pid.nil? } } unless block_given?

        Forks.around do
          super() do
            Forks::LOCK.unlock if Forks::LOCK.owned?
            Forks.in_child
            yield
          end
        end
      end
    end

    if Process.respond_to?(:_fork)
      Process.singleton_class.prepend(Hook)
    else
      [Kernel, Kernel.singleton_class, Process.singleton_class].each { |one| one.prepend(Fork) }
    end
  end

  # The thread of a client, which alone uses its core and its socket.
  #
  # Callers append a request to a queue, and wake the thread. Neither takes a lock, so a call works in a
  # signal handler. If an exception ends a caller's wait (Timeout, Thread#raise), the thread does not
  # notice: each request is done from its begin to its end.
  class Driver
    WRITE_AGAIN = 0.01 # after the kernel had no memory for a write

    attr_reader :core

    def initialize(path, patience, logger)
      @path = path
      @patience = patience
      @logger = logger
      reset
      Forks::CLIENTS[self] = self
    end

    # --- what callers use

    # soon lets the thread run a block. It takes no lock, and does not wait.
    def soon(&request)
      check_fork
      @requests << request
      if @over
        run_requests # nobody else does
      elsif @thread.nil?
        pipes = @pipes
        @thread = Thread.new { run(pipes) } # if another caller has done so, it ends at once
      else
        wake
      end
    end

    # ask begins a call with a block, and waits for its end. An exception that ends the wait abandons it.
    def ask(call, limit = nil)
      gate = Thread::Queue.new
      timer = nil
      call.notify = lambda do
        @core.cancel_timer(timer)
        gate << nil
      end
      answered = false
      begin
        # Thread#raise is noticed while it waits, and at no other time: the answer is not lost.
        Thread.handle_interrupt(Object => :on_blocking) do
          soon do
            yield
            ends_at = limit ? call.started + limit : @core.give_up_at(call)
            timer = @core.at(ends_at) { @core.leave(call, @core.hangs(call)) } if ends_at && call.state != :done
          end
          gate.pop
          answered = true
        end
      ensure
        soon { @core.leave(call) } unless answered
      end
      raise call.error.exception if call.error

      call
    end

    def settle(lease)
      gate = Thread::Queue.new
      soon { @core.settle(lease) { gate << nil } }
      gate.pop
    end

    def close
      gate = Thread::Queue.new
      soon do
        @closers << gate
        @close_at ||= Wire.clock + 1
        @core.close_calls
      end
      gate.pop unless @over || @thread.equal?(Thread.current)
    end

    # check_fork makes a driver of its own of the parent's in a child.
    def check_fork
      return if @pid == Process.pid

      @core.leases.each_value(&:fork_away)
      [@socket, *@pipes].each { |io| io&.close }
      reset
    end

    # --- what the core calls

    def hang_up
      return unless @socket

      begin
        @socket.shutdown # also for processes that have inherited it
      rescue SystemCallError
        nil # the connection has ended
      end
      @socket.close
      @socket = nil
    end

    # lost tells the program, in a thread of its own.
    def lost(lease)
      handler = lease.request.on_lost
      Thread.new { handler.call(lease) } if handler
    end

    def log(level, text)
      @logger&.public_send(level, "redlockd: #{text}")
    rescue StandardError
      nil # the program's logger must not end the client
    end

    private

    def reset
      @pid = Process.pid
      @core = Core.new(@path, @patience, self)
      @requests = Thread::Queue.new
      @pipes = IO.pipe # wakes the thread
      @runs = Thread::Queue.new << true # is taken by the thread that runs
      @thread = nil
      @over = false # the thread has ended, or will read no more requests
      @closers = [] # are told when it has ended
      @close_at = nil # when the wait for releases in flight ends
      @socket = nil
      @write_at = 0.0 # no write is tried before
    end

    def wake
      @pipes[1].write_nonblock("x")
    rescue IO::WaitWritable, IOError, SystemCallError
      nil # it has many bytes to read, or the thread has ended
    end

    def run(pipes)
      begin
        @runs.pop(true)
      rescue ThreadError
        return
      end
      Thread.current.name = "redlockd"
      @thread = Thread.current
      begin
        nil while step(pipes[0])
      ensure # after a defect, no caller waits for this thread
        @over = true
        @core.close
        run_requests
        pipes.each(&:close)
        @closers.each { |gate| gate << nil }
      end
    end

    def run_requests
      loop { @requests.pop(true).call }
    rescue ThreadError
      nil # there is none
    end

    # step does what is due, and waits for the next event. It returns false at the end.
    def step(pipe)
      @core.run_timers
      run_requests
      @core.close if @close_at && (@close_at <= Wire.clock || !@core.releasing?)
      return false if @core.closed

      dial if @core.wants_connection? && @core.dial_at <= Wire.clock
      flush
      now = Wire.clock
      retry_at = @write_at if !@core.out.empty? && @socket && @write_at > now
      due = [@core.next_timer, (@core.dial_at if @core.wants_connection?), @close_at, retry_at].compact.min
      timeout = @requests.empty? ? due && [0.0, due - now].max : 0
      writes = [@socket] if @socket && !@core.out.empty? && retry_at.nil?
      ready, = IO.select([pipe, @socket].compact, writes, nil, timeout)
      return true unless ready

      pipe.read_nonblock(1024, exception: false) if ready.include?(pipe)
      read if @socket && ready.include?(@socket)
      true
    end

    def read
      why = "redlockd closed the connection (stopped or killed?)"
      begin
        data = @socket.read_nonblock(1 << 16, exception: false)
      rescue SystemCallError => e
        data = nil
        why = "redlockd closed the connection (#{e.message})"
      end
      return if data == :wait_readable
      return @core.data(data) if data

      hang_up
      @core.ended(Unavailable.new("", why))
    end

    def dial
      Forks::LOCK.synchronize { @socket = Socket.new(:UNIX, :STREAM) } # so that a child knows every socket that it inherits
      begin
        @socket.connect_nonblock(Socket.sockaddr_un(@path))
      rescue SystemCallError, ArgumentError => e # ArgumentError: the path is too long
        hang_up
        why, final = Wire.dial_error(@path, e)
        return @core.attempt_failed(why, final: final && @core.links.zero?)
      end
      @core.connected
    end

    # flush writes what the socket takes without blocking.
    def flush
      return if @socket.nil? || @core.out.empty? || @write_at > Wire.clock

      written = @socket.sendmsg_nonblock(@core.out, Socket.const_defined?(:MSG_NOSIGNAL) ? Socket::MSG_NOSIGNAL : 0, exception: false)
      @core.out.slice!(0, written) if written.is_a?(Integer)
    rescue Errno::ENOBUFS, Errno::ENOMEM, Errno::EINTR
      @write_at = Wire.clock + WRITE_AGAIN
    rescue SystemCallError
      @core.out.clear # the connection has ended, as read will say
    end
  end
end
