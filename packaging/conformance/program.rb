#!/usr/bin/env ruby
# frozen_string_literal: true

# The program of README.md for the Ruby client.
require_relative "../../client/ruby/lib/redlockd"

$stdout.sync = true
Cancel = Class.new(StandardError)

def say(*words)
  $stdout.write("#{words.join(' ')}\n")
end

def code(error)
  error.code.empty? ? "UNAVAILABLE" : error.code
end

# options returns those of lock. Durations are in milliseconds.
def options(words)
  words.to_h do |word|
    key, value = word.split("=")
    [key.to_sym, %w[wait ttl guard].include?(key) ? Integer(value) / 1000r : value]
  end
end

client = nil
leases = {}
waits = {}
on_lost = {}
release = lambda do |key|
  leases[key].release
  say("released", key)
rescue Redlockd::Error => e
  say("refused", key, code(e))
end
lost = lambda do |key, lease|
  next if lease.cause.message.include?("closed")

  say("lost", key)
  release.call(key) if on_lost.key?(key)
end
lock = lambda do |key, names, words|
  names = names.split(",").map { |name| Redlockd::Wire.unescape(name) }
  leases[key] = client.lock(*names, on_lost: ->(lease) { lost.call(key, lease) }, **options(words))
  say("granted", key, "fence=#{leases[key].fence}")
rescue Cancel
  say("cancelled", key)
rescue Redlockd::Error => e
  say("refused", key, code(e))
end

$stdin.each_line do |text|
  verb, key, *words = text.chomp.split(" ")
  case verb
  when "begin"
    client = Redlockd::Client.new(key)
    leases = {}
    waits = {}
    on_lost = {}
  when "end"
    client.close
    waits.each_value(&:join)
    say("ended")
  when "lock" then waits[key] = Thread.new { lock.call(key, words[0], words[1..]) }
  when "cancel" then waits[key].raise(Cancel)
  when "check"
    Thread.new do
      leases[key].check
      say("checked", key)
    rescue Redlockd::Error => e
      say("refused", key, code(e))
    end
  when "remaining" then say("remaining", key, (leases[key].remaining * 1000).round)
  when "onlost" then on_lost[key] = true
  when "release" then Thread.new { release.call(key) }
  when "list" then Thread.new { say("listed", client.list.size) }
  end
end
