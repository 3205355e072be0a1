# frozen_string_literal: true

# A Sidekiq server middleware: jobs with the same lock do not run at the same time, on any host.
#
#     class NightlyBackup
#       include Sidekiq::Job
#       sidekiq_options "redlock" => { "name" => "nightly-backup", "wait" => 5, "max" => 3600 }
#       def perform = backup(Thread.current[:redlock].check.fence) # check before each write
#     end
#     Sidekiq.configure_server { |c| c.server_middleware { |chain| chain.add RedlockMiddleware } }
#
# If another job holds the lock for all of wait, Redlockd::Held is raised, and Sidekiq retries the job later.
require "redlockd"

class RedlockMiddleware
  CLIENT = Redlockd::Client.new # one connection for all threads of the process

  def call(_job, payload, _queue)
    return yield unless (lock = payload["redlock"])

    options = { wait: 0, note: "#{payload['class']} #{payload['jid']}" }.merge(lock.except("name").transform_keys(&:to_sym))
    CLIENT.lock(lock.fetch("name"), **options) do |lease|
      Thread.current[:redlock] = lease
      yield
    ensure
      Thread.current[:redlock] = nil
    end
  end
end
