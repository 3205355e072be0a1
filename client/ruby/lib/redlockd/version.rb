# frozen_string_literal: true

module Redlockd
  VERSION = "0.9.0"
end
