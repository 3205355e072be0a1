# frozen_string_literal: true

require "securerandom"

module Redlockd
  # A request and its answer.
  class Call
    ROOMS = %w[LOCK RESUME].freeze

    attr_reader :verb, :lease, :request, :what, :tags
    attr_accessor :words, :owner, :state, :sent_on, :resent, :started, :until, :fails, :limits, :shutdowns, :lines, :reply, :reply_text, :error, :notify, :handle

    def initialize(verb, words = "", lease = nil, request = nil)
      @verb = verb
      @words = words
      @lease = lease
      @request = request # of LOCK
      @owner = ""
      name = lease ? lease.name : request ? request.names.join(",") : nil
      @what = verb.downcase + (name ? " \"#{name}\"" : "") # for errors
      @state = :new # :queued, :waiting, :abandoned (nobody waits for it), :done
      @tags = [] # on this connection
      @sent_on = 0 # the last connection; 0: never sent
      @resent = false
      @started = Wire.clock
      @until = nil # how long it waits for a connection; nil: without a bound
      @fails = 0 # Core's fails when it began
      @limits = @shutdowns = 0
      @lines = []
      @reply = nil # the fields of OK
      @reply_text = ""
      @error = nil
      @notify = -> {} # called once, at the end, if a caller waits
      @handle = nil # of LOCK: the lease that the caller gets
    end

    def room
      ROOMS.include?(@verb) ? @verb : "other"
    end

    # once? tells whether it is never sent again: a second FORCE could revoke the lock of the next holder.
    def once?
      @verb == "FORCE"
    end

    def of_lease?
      !@lease.nil? && %w[CHECK EXTEND BEAT].include?(@verb)
    end
  end

  # The cause of a lease that was released.
  class Released < NotHeld; end

  # What a client knows and decides: calls, leases, timers, reconnection. It does no I/O.
  #
  # A driver owns a Core: it connects, passes what it reads to data, writes what is in out, and calls
  # run_timers when next_timer has come. Only the driver's thread may be in a Core; others may make calls
  # (lock, about) and read leases. The driver reads what waits in the socket before it runs timers.
  #
  # A call may be sent more than once: on a new connection, and after BACK. Each sending has a tag of its
  # own, which is never used again, and the first answer counts. A LOCK has an id=, so that a second one
  # gets the grant of the first.
  class Core
    MIN_CHECK = 0.01 # the shortest time before the daemon is asked again
    LATE = 0.05 # a timer that runs so late shows that this process was stopped or busy
    LATE_ANSWER = 1.0 # how long the daemon has to answer then, if the deadline has passed
    RETRY_UNLOCK = 1.0 # between a refusal of a background UNLOCK and the next try
    RETRY_RESUME = 0.25 # between a temporary refusal and the next RESUME
    RESEND_PAUSE = 0.25 # between LIMIT as the answer to a resend and the next one
    MAX_LIMITS = 20 # such refusals of a call
    MAX_SHUTDOWNS = 3 # connections on which a call is refused with SHUTDOWN
    BYE_TIMEOUT = 1.0 # how long answers are read after the daemon said that it stops
    GREETING_TIMEOUT = 5.0 # for the answer to HELLO
    CLOCK_TOLERANCE = 0.01 # by which two readings of one clock may seem to differ
    MIN_PAUSE = 0.01 # between two attempts to connect
    MAX_PAUSE = 1.0
    MAX_UNWRITTEN = 1 << 20 # bytes that stay unwritten if the daemon does not read

    # The daemon bounds the requests in flight on one connection (4,096 by default). Locks may wait for
    # long, and must leave room for the requests that end their wait.
    ROOM = { "LOCK" => 3072, "RESUME" => 256, "other" => 512 }.freeze

    Timer = Struct.new(:at, :run)

    attr_reader :path, :patience, :out, :link, :links, :greeting, :ahead, :resumed, :closed, :leases, :dial_at, :why

    # shell has hang_up (closes the connection; the driver then does not call ended), granted(lease, call),
    # lost(lease) and log(level, text).
    def initialize(path, patience, shell)
      @path = path
      @patience = patience
      @shell = shell
      @out = String.new # to be written
      @link = 0 # the number of the connection; 0: none that may be used
      @links = 0
      @greeting = false # HELLO was sent on a new connection
      @greeted_at = 0.0 # when it was sent
      @ahead = 0.0 # by how much the daemon's clock is ahead of this one, at most
      @resumed = 0
      @closed = false
      @leases = {} # by id: held, or still to be unlocked
      @lost_at = nil # when the last connection ended
      @connected_at = 0.0
      @dial_at = 0.0 # when the next attempt to connect may be made
      @tries = 0
      @fails = 0 # attempts that failed
      @why = Unavailable.new("", "not connected yet")
      @bye = false
      @refused = nil # why the daemon closes a new connection
      @bye_timer = @greeting_timer = nil
      @input = String.new
      @flight = {}.compare_by_identity
      @tags = {} # a call, or :stray or :stray_lock: the call of this tag was answered under another one
      @tag = 0
      @busy = ROOM.transform_values { 0 }
      @queues = ROOM.transform_values { [] }
      @timers = [] # by time
      @dead = 0 # timers that were cancelled
      @id_prefix = "#{SecureRandom.hex(6)}."
      @owners = 0
    end

    # --- timers

    def at(time, &run)
      timer = Timer.new(time, run)
      @timers.insert(@timers.bsearch_index { |other| other.at > time } || @timers.size, timer)
      timer
    end

    def cancel_timer(timer)
      return if timer.nil? || timer.run.nil?

      timer.run = nil
      @dead += 1
      return unless @dead > 64 && 2 * @dead > @timers.size

      @timers.select!(&:run)
      @dead = 0
    end

    # next_timer returns when run_timers has something to do.
    def next_timer
      @timers.first&.at
    end

    def run_timers
      now = Wire.clock
      while !@timers.empty? && @timers.first.at <= now
        timer = @timers.shift
        run = timer.run
        timer.run = nil
        run ? run.call : @dead -= 1
      end
    end

    # --- calls

    # lock returns a call that takes a lock. begin gives it an owner of its own: all locks exclude each other.
    def lock(request)
      Call.new("LOCK", "#{request.words}#{request.options}", nil, request)
    end

    # about returns a call about a lease.
    def about(verb, lease, options = "")
      Call.new(verb, "lease=#{lease.id}#{options}", lease)
    end

    # begin starts a call. Its notify is called when it has ended, perhaps before begin returns.
    def begin(call)
      return if call.state != :new # the caller has left

      if call.request
        name_owner(call)
        call.until = call.request.wait && call.started + call.request.wait
      else
        call.until = call.started
      end
      call.fails = @fails
      if @closed
        fail_call(call, Closed.new(call.what, "this client is closed"))
      elsif @out.bytesize > MAX_UNWRITTEN && !%w[UNLOCK RESUME].include?(call.verb)
        fail_call(call, Unavailable.new(call.what, "redlockd hangs: it does not read its input"))
      elsif @busy[call.room] >= ROOM[call.room]
        call.state = :queued
        @queues[call.room] << call
      else
        start(call)
      end
    end

    # begin_in_background starts a call that nobody waits for.
    def begin_in_background(call)
      self.begin(call)
      call.state = :abandoned if call.state == :waiting
    end

    # give_up_at returns when the caller gives up, because the daemon hangs; nil: never.
    def give_up_at(call)
      return call.started + @patience unless call.request

      call.request.wait && call.started + call.request.wait + @patience
    end

    # leave abandons a call. With why, the caller still waits, and gets that error unless it was answered.
    def leave(call, why = nil)
      return if why && call.state == :done

      abandon(call)
      return unless why

      call.error = why
      call.notify.call
    end

    # hangs returns the error of a caller that gave up.
    def hangs(call)
      return Wire.again(@why, call.what) if @link.zero? && @fails > call.fails
      return Unknown.new(call.what, "redlockd did not answer: ask who before you repeat it") if call.once? && call.sent_on.positive?

      Unavailable.new(call.what, "redlockd at #{@path} does not answer: it hangs, or its nodes do (redlock status)")
    end

    # abandon ends a call whose caller has left. What it is granted is released.
    def abandon(call)
      case call.state
      when :done
        unlock_in_background(call.handle) if call.handle && call.handle.cause.nil?
      when :new, :queued
        @queues[call.room].delete_if { |one| one.equal?(call) }
        call.state = :done
      when :waiting
        call.state = :abandoned
        cancel(call.tags) if call.request
        end_call(call) if call.tags.empty? && !should_send?(call)
      end
    end

    # --- connections

    # wants_connection? tells whether a lease must be resumed, or a call waits.
    def wants_connection?
      return false if @link.positive? || @greeting || @closed

      @flight.each_key.any? { |call| should_send?(call) } || @leases.each_value.any? { |lease| lease.detached || lease.unwatched }
    end

    # connected is called when the driver has connected: greets the daemon.
    def connected
      @links += 1
      @greeting = true
      @bye = false
      @refused = nil
      @input = String.new
      @tags.clear
      @out.replace("@0 HELLO 1\n")
      @greeted_at = Wire.clock
      @greeting_timer = at(@greeted_at + GREETING_TIMEOUT) do
        @shell.hang_up
        ended(Unavailable.new("", "redlockd at #{@path} does not answer: it hangs"))
      end
    end

    # attempt_failed is called when the driver could not connect. final: another attempt would not help.
    def attempt_failed(error, final: false)
      @why = error
      @fails += 1
      @tries += 1
      @dial_at = Wire.clock + pause(@tries - 1)
      if final
        @flight.keys.each { |call| fail_call(call, Wire.again(error, call.what)) if call.state == :waiting }
      end
      fail_expired
    end

    # ended is called when the connection has ended. Leases that the daemon keeps until they are resumed go
    # on. here: this side has ended it, so that the daemon releases them.
    def ended(error, here: false)
      if @refused
        error = Unavailable.new("", "redlockd closed the connection: #{@refused.text}")
      elsif @bye
        error = Shutdown.new("", "redlockd is stopping, and no other one has started")
      end
      if @greeting
        cancel_timer(@greeting_timer)
        @greeting = false
        attempt_failed(@refused || error, final: !@refused.nil? && @refused.code != "SHUTDOWN")
        return
      end
      return if @link.zero? || @closed

      now = Wire.clock
      @shell.log(:info, error.message) unless @leases.empty? && @flight.empty?
      @link = 0
      @out.clear
      @tags.clear
      cancel_timer(@bye_timer)
      @bye_timer = nil
      @why = error
      @lost_at = now
      @tries = now - @connected_at < MAX_PAUSE ? @tries + 1 : 0
      @dial_at = now + (@tries > 1 ? pause(@tries) : 0)
      detach_leases(error, here)
      @flight.keys.each { |call| outlast(call, error, here) }
      @queues["RESUME"].clear
    end

    # data handles what the driver has read.
    def data(received)
      lines = (@input << received).split("\n", -1)
      @input = lines.pop
      link = @links
      greeting = @greeting
      lines.each do |raw|
        line(Wire.parse(raw)) unless raw.empty?
        return if link != @links || !(@link.positive? || @greeting) # this connection is no longer used
      end
      raise Wire::ProtocolError, "a line does not end" if @input.bytesize > Wire::MAX_LINE
    rescue Wire::ProtocolError => e
      text = "the peer at #{@path} does not speak the protocol of redlockd (#{e.message}): is it redlockd's socket?"
      @shell.hang_up
      @refused = Unavailable.new("", text) if greeting && @greeting
      ended(Unavailable.new("", text), here: true)
    end

    # --- leases

    # settle calls the block as soon as it is known whether the lease is held. Due timers have run.
    def settle(lease, &notify)
      return lease.doubters << notify if lease.doubt

      expire(lease) if lease.cause.nil? && lease.end_at <= Wire.clock
      notify.call
    end

    # expired returns the cause of a lease that ended without a report of the daemon.
    def expired(lease)
      ms = (lease.guard * 1000).round
      text =
        if lease.request.hold == "ttl"
          "its ttl ends in less than the guard of #{ms} ms, and extend was not called"
        elsif lease.bound.positive? && lease.deadline >= lease.bound
          "its maximum holding time ends in less than the guard of #{ms} ms"
        elsif @link.zero?
          "not confirmed #{ms} ms before its deadline: there is no connection: #{@why.text}"
        else
          "not confirmed #{ms} ms before its deadline: this process was stopped, or redlockd hangs or could not extend it"
        end
      Lost.new(lease.what, "lost: #{text}")
    end

    # expire ends a lease that the daemon has not reported as lost. The daemon may still extend it. It is
    # unlocked at the deadline, and not before, because its holder may still be stopping.
    def expire(lease)
      return unless lease.cause.nil?

      due = lease.maybe_kept || !lease.detached
      finish(lease, expired(lease), forget: !due)
      unlock_at(lease, lease.deadline) if due
    end

    # release begins an UNLOCK. It fails if there is nothing to unlock.
    def release(call, lease)
      if lease.cause.nil?
        lease.unlocking = true
        finish(lease, Released.new(lease.what, "not held: it is already released"), forget: false)
        return self.begin(call)
      end
      unless lease.cause.is_a?(Released)
        begin_unlock(lease) if lease.unlock_due # the holder has stopped, so do not wait for the deadline
        lease.unlocking = true
      end
      fail_call(call, Wire.again(lease.cause))
    end

    # unlock_in_background unlocks a lease that nobody uses.
    def unlock_in_background(lease)
      finish(lease, Released.new(lease.what, "not held: it is already released"), forget: false)
      begin_unlock(lease)
    end

    # --- the end

    # close_calls begins to close: a call that waits may be granted a lock that would stay, so it is cancelled.
    def close_calls
      @flight.keys.each do |call|
        next unless call.state == :waiting && call.request&.outlasts?

        call.error = Closed.new(call.what, "this client is closed")
        call.notify.call
        abandon(call)
      end
    end

    # releasing? tells whether a release is in flight whose lock would stay if the connection ended now.
    def releasing?
      @link.positive? && @flight.each_key.any? do |call|
        next false unless call.state == :abandoned

        call.request ? call.request.outlasts? : call.verb == "UNLOCK" && (call.lease.nil? || call.lease.request.hold != "conn")
      end
    end

    # close ends all leases and calls, and then the connection, at which the daemon releases the locks.
    def close(why = "this client is closed")
      return if @closed

      @closed = true
      @leases.values.each { |lease| finish(lease, Lost.new(lease.what, "lost: #{why}")) }
      @queues.each_value { |queue| fail_call(queue.shift, Closed.new("", why)) until queue.empty? }
      @flight.keys.each { |call| fail_call(call, Closed.new(call.what, why)) }
      @timers.clear
      @out.clear
      @shell.hang_up
    end

    private

    def name_owner(call)
      n = (@owners += 1).to_s(16)
      call.words += " id=#{@id_prefix}#{n}"
      return if call.request.hold == "pid"

      call.owner = n
      call.words += " owner=#{n}"
    end

    def pause(tries)
      [MIN_PAUSE * 2**[[tries, 0].max, 10].min, MAX_PAUSE].min * rand(0.5..1.0)
    end

    # --- calls

    def start(call)
      @busy[call.room] += 1
      call.state = :waiting
      @flight[call] = true
      if @link.positive?
        send_call(call) unless awaits_resume?(call)
        return
      end
      plan_failure(call)
      @dial_at = [@dial_at, Wire.clock + MIN_PAUSE].min
    end

    # awaits_resume? tells whether the daemon may not know the call's lease yet.
    def awaits_resume?(call)
      call.of_lease? && call.lease.detached
    end

    def send_call(call)
      tag = (@tag += 1).to_s
      call.resent ||= call.sent_on.positive?
      call.tags << tag
      call.sent_on = @link
      call.lines = [] # the whole answer will come again
      @tags[tag] = call
      wait = ""
      if call.request && call.state == :abandoned
        wait = " wait=0" # it only finds out what to release
      elsif call.request&.wait
        wait = " wait=#{[0, ((call.started + call.request.wait - Wire.clock) * 1000).round].max}"
      end
      @out << "@#{tag} #{call.verb} #{call.words}#{wait}\n".b
    end

    # should_send? tells whether a new connection has to send the call.
    def should_send?(call)
      if call.state == :abandoned
        return call.verb == "UNLOCK" || (call.request&.hold == "pid" && call.sent_on.positive?)
      end

      call.verb != "RESUME" && !(call.once? && call.sent_on.positive?)
    end

    # end_call ends the flight of a call.
    def end_call(call)
      abandoned = call.state == :abandoned
      call.state = :done
      if @flight.delete(call)
        @busy[call.room] -= 1
        following = @queues[call.room].shift
        start(following) if following
      end
      call.notify.call unless abandoned
    end

    def fail_call(call, error)
      call.error = error
      forget_tags(call, "")
      if call.verb == "UNLOCK" && call.lease && call.state != :new && !@closed
        unlock_later(call.lease)
      elsif call.verb == "CHECK" && call.lease
        call.lease.checking = false
      end
      end_call(call)
    end

    def forget_tags(call, answered)
      call.tags.each do |tag|
        if tag == answered
          @tags.delete(tag)
        else
          @tags[tag] = call.request ? :stray_lock : :stray
        end
      end
      call.tags.clear
    end

    def cancel(tags)
      tags.each { |tag| @out << "CANCEL #{tag}\n" }
    end

    # --- connections

    def greeted(parsed)
      if parsed.kind == "BACK" # the answer may be lost, or may come twice
        @shell.hang_up
        @greeting = false
        cancel_timer(@greeting_timer)
        @dial_at = 0.0
      elsif parsed.kind == "ERR"
        @refused = Wire.refusal("", parsed.code, parsed.fields, parsed.text)
        return if parsed.tag.empty?

        @shell.hang_up
        ended(@refused)
      elsif parsed.kind == "OK" && parsed.tag == "0"
        note_clock(Wire.number(parsed.fields, "clock") / 1000.0)
        use
      elsif parsed.kind == "BYE"
        @bye = true
      end
    end

    # note_clock compares the clocks: they differ if the two processes are in different time namespaces.
    # Unless one clock can have made the daemon's reading after HELLO was sent, the earliest deadlines count.
    def note_clock(daemons)
      ahead = daemons + 0.001 - @greeted_at # daemons is in whole milliseconds
      same = -CLOCK_TOLERANCE <= ahead && daemons <= Wire.clock + CLOCK_TOLERANCE
      @ahead = same || daemons.zero? ? 0.0 : ahead
    end

    # use makes a new connection the current one, and sends on it what is in flight.
    def use
      cancel_timer(@greeting_timer)
      @greeting = false
      @link = @links
      @connected_at = Wire.clock
      @shell.log(:info, "reconnected to redlockd at #{@path}") if @links > 1
      @leases.values.each { |lease| resume(lease) if lease.detached || lease.unwatched }
      @flight.keys.each do |call|
        next unless call.sent_on != @link && should_send?(call) && !awaits_resume?(call)

        send_call(call)
        cancel(call.tags) if call.state == :abandoned && call.request
      end
    end

    def detach_leases(error, here)
      @leases.values.each do |lease|
        next unless lease.cause.nil?

        hold = lease.request.hold
        finish(lease, Lost.new(lease.what, error.text)) if here && hold == "conn"
        lease.detached = lease.cause.nil? && hold == "conn"
        lease.unwatched = lease.cause.nil? && hold == "pid"
      end
    end

    # outlast handles a call whose connection has ended.
    def outlast(call, error, here)
      call.tags.clear
      call.fails = @fails
      if call.verb == "RESUME" || (call.state == :abandoned && !should_send?(call))
        call.lease.checking = false if call.verb == "CHECK" && call.lease
        end_call(call)
      elsif call.once? && call.sent_on.positive?
        fail_call(call, Unknown.new(call.what, "the connection ended before the answer: ask who whether it was done"))
      elsif here && call.state == :waiting
        fail_call(call, Unavailable.new(call.what, error.text))
      else
        plan_failure(call)
      end
    end

    # plan_failure lets a call fail when it has waited long enough for a connection.
    def plan_failure(call)
      call.until = nil if call.state == :abandoned && call.lease&.request&.hold == "pid" # otherwise the lock would stay with the process
      return if call.until.nil?

      call.until = [call.until, @lost_at + @patience].max if @lost_at
      at(call.until) { fail_expired }
    end

    # fail_expired fails the calls that have waited long enough for a connection, and for one attempt.
    def fail_expired
      return if @link.positive?

      now = Wire.clock
      @flight.keys.each do |call|
        fail_call(call, Wire.again(@why, call.what)) if call.until && call.until <= now && @fails > call.fails
      end
    end

    def line(parsed)
      return greeted(parsed) if @greeting

      case parsed.kind
      when "LOST"
        lease = @leases[parsed.fields["lease"]]
        lost_by_daemon(lease, parsed) if lease
      when "BYE"
        stopping
      when "BACK" # answers may be lost, or may still come
        @flight.keys.each { |call| send_call(call) unless call.tags.empty? || call.once? }
      else
        answer(parsed) unless parsed.tag.empty?
        # else the answer to CANCEL, which says nothing, or an event of a later version
      end
    end

    def answer(parsed)
      call = @tags[parsed.tag]
      if call.is_a?(Symbol)
        return if parsed.kind == "-"

        @tags.delete(parsed.tag)
        release_stray(parsed.fields["lease"]) if call == :stray_lock && parsed.kind == "OK"
        return
      end
      raise Wire::ProtocolError, "an answer without a request: tag #{parsed.tag[0, 20]}" if call.nil?

      if parsed.kind == "-"
        call.lines << parsed.fields
        return
      end
      return if parsed.kind == "ERR" && sends_again?(call, parsed)

      others = call.tags - [parsed.tag]
      forget_tags(call, parsed.tag)
      if parsed.kind == "OK"
        call.reply = parsed.fields
        call.reply_text = parsed.text
      else
        call.error = Wire.refusal(call.what, parsed.code, parsed.fields, parsed.text)
        cancel(others) if call.request # so that none of them goes on waiting
      end
      settle_call(call, parsed)
      end_call(call)
    end

    # sends_again? tells whether the caller does not get a refusal, because the request will be sent again.
    # SHUTDOWN with drain= is an answer: the daemon keeps the connection and extends its leases.
    def sends_again?(call, parsed)
      if parsed.code == "SHUTDOWN" && !parsed.fields.key?("drain") && should_send?(call) && call.shutdowns < MAX_SHUTDOWNS
        call.shutdowns += 1
        drop_tag(call, parsed.tag)
        stopping # the next connection sends it
        return true
      end
      return false unless parsed.code == "LIMIT" && call.resent && call.limits < MAX_LIMITS && call.verb != "RESUME"

      call.limits += 1
      drop_tag(call, parsed.tag)
      link = @link
      at(Wire.clock + RESEND_PAUSE) { send_call(call) if @link == link && %i[waiting abandoned].include?(call.state) }
      true
    end

    def drop_tag(call, tag)
      call.tags.delete(tag)
      @tags.delete(tag)
    end

    # stopping is called when the daemon says that it stops, and bounds the wait for its end.
    def stopping
      return if @bye

      @bye = true
      @bye_timer = at(Wire.clock + BYE_TIMEOUT) do
        @shell.hang_up
        ended(@why)
      end
    end

    def release_stray(id)
      begin_in_background(Call.new("UNLOCK", "lease=#{id}")) if id && !@leases.key?(id)
    end

    # --- leases

    # settle_call handles the answer to a call.
    def settle_call(call, parsed)
      if call.request
        granted(call) if call.reply
      elsif call.lease
        case call.verb
        when "UNLOCK" then unlocked(call, call.lease)
        when "RESUME" then resume_answered(call, call.lease, parsed.fields)
        else checked(call, call.lease, parsed)
        end
      end
    end

    def granted(call)
      raise Wire::ProtocolError, "a grant without its fields" unless call.reply["lease"] && call.reply["deadline"]

      lease = Lease.new(@shell, call)
      @leases[lease.id] = lease
      now = Wire.clock
      lease.extended(call.reply, now, @ahead)
      lease.bound = now + call.request.max * 0.99 - 0.02 if call.request.max.positive? && call.request.hold != "ttl" # the daemon counts from before it asked the nodes
      if call.state == :abandoned
        unlock_in_background(lease)
      elsif lease.end_at <= now
        call.error = expired(lease)
        unlock_in_background(lease)
      else
        call.handle = lease
        arm(lease, now)
      end
    end

    # arm sets the timer to half of the time that is left: it does not run while the host is suspended.
    def arm(lease, now)
      end_doubt(lease)
      cancel_timer(lease.timer)
      left = lease.end_at - now
      lease.timer = at(now + (left / 2 >= MIN_CHECK ? left / 2 : left)) { tick(lease) }
    end

    def tick(lease)
      now = Wire.clock
      if lease.cause
        begin_unlock(lease) if lease.unlock_due
        return
      end
      left = lease.end_at - now
      if left <= 0
        late = now - lease.timer.at > LATE
        expire(lease) unless late && ask_again(lease, now)
        return
      end
      if left >= 2 * MIN_CHECK && lease.request.hold != "ttl" && @link.positive? && !(lease.checking || lease.detached)
        lease.checking = true
        begin_in_background(about("CHECK", lease))
      end
      arm(lease, now)
    end

    # ask_again asks whether a lease is still held whose end this process noticed late: the daemon may have
    # extended it all the time. Until the answer it is in doubt. It returns false if that is no use.
    def ask_again(lease, now)
      return false if lease.doubt || lease.request.hold == "ttl" || @link.zero?

      lease.doubt = about("CHECK", lease)
      begin_in_background(lease.doubt)
      cancel_timer(lease.timer)
      left = lease.deadline - now
      lease.timer = at(now + (left.positive? ? left / 2 : LATE_ANSWER)) { tick(lease) }
      true
    end

    def end_doubt(lease)
      lease.doubt = nil
      doubters = lease.doubters.dup
      lease.doubters.clear
      doubters.each(&:call)
    end

    # finish ends a lease. Only the first call counts.
    def finish(lease, cause, forget: true)
      @leases.delete(lease.id) if forget && @leases[lease.id].equal?(lease)
      if forget || lease.cause.nil?
        cancel_timer(lease.timer)
        lease.unlock_due = false
      end
      return if lease.cause

      lease.cause = cause
      end_doubt(lease)
      detached = lease.detached
      lease.detached = lease.unwatched = false
      if detached
        @flight.keys.each { |call| fail_call(call, cause) if call.of_lease? && call.lease.equal?(lease) && call.tags.empty? }
      end
      return if cause.is_a?(Released)

      @shell.log(:warn, cause.message) unless @closed
      @shell.lost(lease)
    end

    def lost_by_daemon(lease, parsed)
      forced = parsed.fields["reason"] == "forced" && lease.names.size > 1
      text = parsed.text.empty? ? "lost: reason=#{parsed.fields['reason']}" : parsed.text
      finish(lease, Lost.new(lease.what, text, parsed.fields), forget: !forced)
      unlock_at(lease, lease.deadline) if forced && !lease.unlocking # the daemon keeps its other names until the holder has stopped
    end

    def unlock_at(lease, time)
      lease.unlock_due = true
      cancel_timer(lease.timer)
      lease.timer = at(time) { tick(lease) }
    end

    # unlock_later unlocks again after a failure, unless the lease expires by itself.
    def unlock_later(lease)
      if lease.request.hold == "pid" || @link.positive?
        unlock_at(lease, Wire.clock + RETRY_UNLOCK)
      else
        finish(lease, lease.cause || expired(lease))
      end
    end

    def begin_unlock(lease)
      lease.unlock_due = false
      lease.unlocking = true
      begin_in_background(about("UNLOCK", lease))
    end

    def unlocked(call, lease)
      error = call.error
      if error.nil? || (error.code == "NOTHELD" && call.resent)
        call.error = nil # an earlier UNLOCK released it
      elsif error.code == "NOTHELD"
        call.error = Lost.new(call.what, "lost: redlockd no longer knows it (#{error.text})", error.fields)
      elsif error.code != "LOST"
        lease.unlocking = false
        return unlock_at(lease, Wire.clock + RETRY_UNLOCK)
      end
      finish(lease, lease.cause || expired(lease))
    end

    # checked handles the answer to CHECK, EXTEND or BEAT.
    def checked(call, lease, parsed)
      error = call.error
      lease.checking = false
      if lease.cause
        call.error = lease.cause
      elsif error.nil?
        lease.forget_ttl if call.verb == "EXTEND" && parsed.fields["ttl"] && call.words.include?(" ttl=")
        now = Wire.clock
        lease.extended(parsed.fields, now, @ahead)
        if lease.end_at > now
          arm(lease, now)
        elsif lease.doubt.nil? && call.state == :abandoned && ask_again(lease, now)
          # the answer has waited to be read
        elsif lease.doubt.nil? || lease.doubt.equal?(call)
          expire(lease)
          call.error = lease.cause
        end
      elsif error.code == "LOST"
        lost_by_daemon(lease, parsed)
        call.error = lease.cause
      elsif error.code == "NOTHELD"
        finish(lease, Lost.new(lease.what, "lost: redlockd no longer knows it (#{error.text})", error.fields))
        call.error = lease.cause
      end
    end

    def resume(lease)
      owner = lease.owner.empty? ? "" : " owner=#{lease.owner}"
      begin_in_background(Call.new("RESUME", "#{lease.request.words} lease=#{lease.id}#{owner}", lease))
    end

    def resume_answered(call, lease, fields)
      error = call.error
      if error.nil?
        resume_granted(lease, fields)
      elsif lease.request.hold == "pid" && !%w[LIMIT NOTHELD LOST].include?(error.code)
        lease.unwatched = false # after NOQUORUM the daemon reports a loss
      elsif %w[NOTHELD LOST VERB].include?(error.code)
        finish(lease, Lost.new(lease.what, "lost: the connection ended, and a new one could not resume it (#{error.text})", error.fields))
      else
        lease.maybe_kept = true
        return unlock_ended(lease) if lease.cause

        link = @link
        at(Wire.clock + RETRY_RESUME) { resume(lease) if @link == link && (lease.detached || lease.unwatched) }
      end
    end

    def resume_granted(lease, fields)
      if lease.cause
        unlock_ended(lease) if lease.request.hold == "conn"
        return
      end
      if lease.detached || lease.unwatched
        @resumed += 1
        @shell.log(:info, "lease \"#{lease.name}\" continues over the new connection")
      end
      lease.detached = lease.unwatched = false
      now = Wire.clock
      lease.extended(fields, now, @ahead)
      arm(lease, now)
      @flight.keys.each do |call|
        send_call(call) if call.of_lease? && call.lease.equal?(lease) && call.tags.empty? && should_send?(call)
      end
    end

    # unlock_ended unlocks a lease that has ended here but that the daemon keeps: at the deadline that the
    # holder knew, because the holder may still be stopping, or at once if it has stopped.
    def unlock_ended(lease)
      unlock_at(lease, lease.unlocking || lease.cause.is_a?(Released) ? 0.0 : lease.deadline)
    end
  end
end
