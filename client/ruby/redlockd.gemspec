# frozen_string_literal: true

require_relative "lib/redlockd/version"

Gem::Specification.new do |s|
  s.name = "redlockd"
  s.version = Redlockd::VERSION
  s.summary = "Distributed locks of redlockd, the lock daemon of this host"
  s.authors = ["The redlockd authors"]
  s.license = "Apache-2.0"
  s.homepage = "https://github.com/redlockd/redlockd/blob/main/packaging/docs/CLIENTS.md"
  s.metadata = { "source_code_uri" => "https://github.com/redlockd/redlockd", "rubygems_mfa_required" => "true" }
  s.required_ruby_version = ">= 3.0"
  s.files = Dir["lib/**/*.rb", "README.md", base: __dir__].sort
end
