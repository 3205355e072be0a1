# frozen_string_literal: true

require_relative "redlockd/version"
require_relative "redlockd/wire"
require_relative "redlockd/core"
require_relative "redlockd/lease"
require_relative "redlockd/driver"

# Locks of redlockd, the lock daemon of this host.
#
#     require "redlockd"
#
#     client = Redlockd::Client.new # $REDLOCK_SOCKET, or the default
#     client.lock("nightly-backup", wait: 5) do |lease| # Redlockd::Held, NoQuorum, Denied … after 5 s
#       backup(lease.fence) # call lease.check before each write: it raises Lost
#     end
#
# A Client is one connection, for any number of threads, fibers and locks; a process needs one. It connects
# when it is first used, and reconnects and resumes its leases when redlockd restarts. After a fork, the
# child has no part in its parent's leases; the same Client works there, over a connection of its own. All
# durations are in seconds.
module Redlockd
  # A connection to redlockd. It is safe for threads, fibers, signal handlers and fork.
  class Client
    # path: of the socket; nil: $REDLOCK_SOCKET, or the default. patience: how long calls wait for a redlockd
    # that restarts or hangs, in addition to their wait. logger: a Logger for losses and reconnections.
    def initialize(path = nil, patience: 5, logger: nil)
      @path = Wire.socket_path(path)
      @driver = Driver.new(@path, Wire.milliseconds(:patience, patience) / 1000.0, logger)
    end

    # Takes a lock; several names are taken together, all or none. It raises Held, NoQuorum, Denied and so on.
    # With a block, it yields the lease, releases it at the end, and returns what the block returns; if the
    # lock was lost by then, it raises Lost, unless the block raised. Without a block, it returns the lease.
    #
    # wait: how long to wait for it, 0 for not at all; nil: without a bound. on_lost: is called with the lease
    # if it is lost, in a thread of its own. release_wait: how long a release waits for its answer; after that
    # it continues in the background, without an error. nil: it waits for the client's patience, and then
    # raises Unavailable. The other options are LOCK's in PROTOCOL: ttl, mode, slots, hold, pid, max, min,
    # guard, linger, beat, note.
    def lock(*names, **options, &block)
      request = Request.new(names, options)
      block ? hold(request, &block) : acquire(request)
    end

    # As lock, but returns nil if another client holds it. It does not wait, unless wait: says so.
    def try_lock(*names, **options, &block)
      request = Request.new(names, { wait: 0 }.merge(options))
      begin
        lease = acquire(request)
      rescue Held
        return nil
      end
      block ? hold(request, lease, &block) : lease
    end

    # Tells whether anyone holds the lock, on any host. Another client may take it right after the answer.
    def locked?(name)
      who(name).any? { |line| !line.key?("waiting") }
    end

    # Returns the holders of a lock, on all hosts, as PROTOCOL describes WHO.
    def who(name)
      question("WHO", Wire.check_names([name])[1]).lines
    end

    # Returns what is held and waited for at this host's daemon, as PROTOCOL describes LIST.
    def list
      question("LIST").lines
    end

    # Returns the state of the daemon and its text, and that of each node, as PROTOCOL describes STATUS.
    def status
      call = question("STATUS")
      [call.reply.merge("text" => call.reply_text), call.lines]
    end

    # Revokes a lock, as PROTOCOL describes FORCE: it needs the right. The holder may continue to work until
    # it notices. It is never sent twice: Unknown if its answer is lost.
    def force(name)
      question("FORCE", Wire.check_names([name])[1]).reply
    end

    # How many leases a later connection has resumed.
    def resumed
      @driver.core.resumed
    end

    # How many connections were made after the first one.
    def reconnects
      [@driver.core.links - 1, 0].max
    end

    # Ends all leases, and the connection. Calls that wait raise Closed.
    def close
      @driver.close
    end

    def inspect
      core = @driver.core
      "#<Redlockd::Client #{@path.inspect} #{core.closed ? 'closed' : core.link.positive? ? 'connected' : 'not connected'}>"
    end

    private

    def question(verb, words = "")
      call = Call.new(verb, words)
      @driver.ask(call) { @driver.core.begin(call) }
    end

    def acquire(request)
      @driver.check_fork
      call = @driver.core.lock(request)
      @driver.ask(call) { @driver.core.begin(call) }.handle
    end

    # hold runs a block with the lock. Thread#raise, as Timeout uses it, comes neither between the grant and
    # the block nor between the block and the release.
    def hold(request, lease = nil)
      failed = false
      begin
        Thread.handle_interrupt(Object => :never) { lease ||= acquire(request) }
        yield lease
      rescue Exception # what the block raises is passed on
        failed = true
        raise
      ensure
        Thread.handle_interrupt(Object => :never) { leave(lease, failed) if lease }
      end
    end

    def leave(lease, failed)
      return if lease.cause.is_a?(Released) # the block has released it

      lease.release
    rescue Error
      raise unless failed # else the exception of the block is what counts
    rescue Exception # out of a signal handler, perhaps before the release has begun
      call = @driver.core.about("UNLOCK", lease)
      @driver.soon { @driver.core.release(call, lease) }
      raise
    end
  end
end
