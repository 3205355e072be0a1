# frozen_string_literal: true

# The Sidekiq middleware of packaging/examples, called as Sidekiq 7 calls it. Its interface
# (lib/sidekiq/middleware/chain.rb): call(job_instance, job_payload, queue) { the job }.
require "minitest/autorun"
require_relative ENV.fetch("REDLOCKD_ADAPTERS")

class SidekiqMiddleware < Minitest::Test
  def work(lock, &job)
    payload = { "class" => "NightlyBackup", "jid" => "b4a577edbccf1d805744efa9", "redlock" => lock }
    RedlockMiddleware.new.call(Object.new, payload, "default", &job)
  end

  def test_jobs_with_one_lock_exclude_each_other
    result = work({ "name" => "sidekiq" }) do
      assert_operator Thread.current[:redlock].check.fence, :>, 0
      assert_equal "NightlyBackup b4a577edbccf1d805744efa9", RedlockMiddleware::CLIENT.who("sidekiq").first["note"]
      Thread.new { assert_raises(Redlockd::Held) { work({ "name" => "sidekiq" }) { flunk } } }.value
      work({ "name" => "sidekiq other", "wait" => 5, "max" => 60 }) { :inner }
    end
    assert_equal :inner, result
    assert_nil Thread.current[:redlock]
    assert_equal :again, work({ "name" => "sidekiq" }) { :again }
  end

  def test_job_that_fails_and_job_without_a_lock
    assert_raises(ZeroDivisionError) { work({ "name" => "sidekiq" }) { 1 / 0 } }
    refute RedlockMiddleware::CLIENT.locked?("sidekiq")
    assert_equal 5, work(nil) { 5 }
  end
end
