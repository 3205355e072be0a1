# frozen_string_literal: true

# A small Fiber scheduler, for tests: it runs fibers that wait for a queue, for a time, or for a file.
class TestScheduler
  def initialize
    @ready = Thread::Queue.new
    @blocked = 0
    @waiting = {}.compare_by_identity # fibers, and when to wake them
  end

  def run
    until @blocked.zero? && @waiting.empty? && @ready.empty?
      resume_due
      fiber = @ready.empty? ? nil : @ready.pop
      fiber ? fiber.resume : Thread.pass
    end
  end

  def close
    run
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def block(_blocker, timeout = nil)
    return kernel_sleep(timeout) if timeout

    @blocked += 1
    Fiber.yield
    true
  end

  # unblock is called by other threads.
  def unblock(_blocker, fiber)
    @blocked -= 1
    @ready << fiber
  end

  def kernel_sleep(seconds = 0)
    @waiting[Fiber.current] = Redlockd::Wire.clock + seconds
    Fiber.yield
  end

  def io_wait(_io, events, _timeout)
    kernel_sleep(0)
    events
  end

  private

  def resume_due
    now = Redlockd::Wire.clock
    @waiting.select { |_, at| at <= now }.each_key do |fiber|
      @waiting.delete(fiber)
      fiber.resume
    end
  end
end
