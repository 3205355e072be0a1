# frozen_string_literal: true

module Redlockd
  # A lock that is held, until it is released or lost. Threads may share it.
  class Lease
    attr_reader :names, :name, :fence, :slot

    # Why it ended; nil while it is held.
    def cause
      @driver.check_fork
      @cause
    end

    # Tells whether it has ended, by a loss or a release. It does not wait; check does if it must.
    def lost?
      !cause.nil?
    end

    # Returns for how many seconds the lease is certainly held, unless it is extended.
    def remaining
      cause || @doubt ? 0.0 : [0.0, @deadline - Wire.clock].max
    end

    # Raises Lost unless the lease is certainly held for longer than its guard. It reads the clock, and asks
    # the daemon only if this process was stopped or busy for so long that it cannot know.
    def check
      @driver.settle(self) if cause.nil? && Wire.clock >= end_at
      raise Wire.again(@cause) if @cause
      raise @driver.core.expired(self) if Wire.clock >= end_at

      self
    end

    # Releases the lock. It raises Lost if the lease was lost before. In a child of the process that holds
    # it, it does nothing. wait: how long to wait for the answer; after that it continues in the background,
    # without an error. nil: release_wait: of the lock.
    def release(wait: nil)
      @driver.check_fork
      return if forked?

      seconds = wait.nil? ? @request.release_wait : Wire.milliseconds(:wait, wait) / 1000.0
      call = @driver.core.about("UNLOCK", self)
      @driver.ask(call, seconds) { @driver.core.release(call, self) }
      nil
    rescue Unavailable => e
      raise if seconds.nil?

      @driver.log(:warn, "#{e.message} (it is still being released)")
    end

    # Extends a lease of hold: "ttl" now, or changes the ttl.
    def extend(ttl: nil)
      ask("EXTEND", ttl.nil? ? "" : " ttl=#{Wire.milliseconds(:ttl, ttl)}")
    end

    # Tells the daemon that the work makes progress, for a lease with beat:.
    def beat
      ask("BEAT", "")
    end

    # Makes an exclusive lease a shared one.
    def downgrade
      ask("EXTEND", " mode=shared")
    end

    # The id is a secret: a program that knows it can release the lock.
    def inspect
      state = lost? ? @cause.class.name : format("held, for %.1f s more unless it is extended", remaining)
      "#<Redlockd::Lease #{@name.inspect} fence=#{@fence} #{state}>"
    end

    # --- what the core keeps here

    attr_reader :id, :request, :owner, :deadline, :guard, :doubters, :what # :nodoc:
    attr_accessor :bound, :timer, :checking, :doubt, :detached, :unwatched, :maybe_kept, :unlock_due, :unlocking # :nodoc:
    attr_writer :cause # :nodoc:

    def initialize(driver, call) # :nodoc:
      @driver = driver
      @request = call.request
      @owner = call.owner
      @names = @request.names
      @name = @names.join(",").freeze
      @what = "lease \"#{@name}\""
      @id = call.reply["lease"]
      @fence = Wire.number(call.reply, "fence")
      @slot = Wire.number(call.reply, "slot")
      @cause = nil
      @ttl = @request.ttl
      @bound = 0.0 # a deadline from here on is caused by max=; 0: no bound
      @deadline = @guard = @longest = 0.0
      @timer = nil
      @checking = false
      @doubt = nil # a CHECK, because this process noticed the deadline late
      @doubters = [] # are called when the doubt has ended
      @detached = false # its connection has ended, and no other one has resumed it yet
      @unwatched = false # a process holds it, and the connection that would report its loss has ended
      @maybe_kept = false # RESUME was refused, but the daemon may keep it
      @unlock_due = false # lost here, but the daemon may keep it: unlock it at the deadline
      @unlocking = false # the holder has stopped
    end

    def end_at # :nodoc:
      @deadline - @guard
    end

    # extended sets a later deadline. Answers can overtake each other, so an earlier one is older.
    def extended(reply, now, ahead) # :nodoc:
      left = Wire.number(reply, "ttl") / 1000.0
      at = Wire.number(reply, "deadline") / 1000.0
      if at.positive?
        at = Wire::HAS_BOOTTIME ? at - ahead : now + left
        @deadline = [@deadline, [at, now + left + 0.001].min].max
      end
      @longest = [@longest, left].max
      said = Wire.number(reply, "guard") / 1000.0
      said = (@ttl.positive? ? @ttl : @longest) / 5 if said.zero?
      @guard = @request.guard.positive? ? @request.guard : [said, @longest / 5].min
    end

    # forget_ttl is called when the ttl has changed.
    def forget_ttl # :nodoc:
      @ttl = @longest = 0.0
    end

    def forked? # :nodoc:
      @forked
    end

    # fork_away ends the child's part in a lease of its parent.
    def fork_away # :nodoc:
      @forked = true
      @cause = Lost.new(@what, "this process was forked from the one that holds it: take a lock of its own")
    end

    private

    def ask(verb, options)
      raise Wire.again(@cause) if cause

      call = @driver.core.about(verb, self, options)
      @driver.ask(call) { @driver.core.begin(call) }
      self
    end
  end
end
