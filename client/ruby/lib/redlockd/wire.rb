# frozen_string_literal: true

# Lines of the protocol, options, and errors. It does no I/O.
module Redlockd
  DEFAULT_SOCKET = "/run/redlockd/redlockd.sock"

  # An error of redlockd. Its message says what happened, to which lock, and what to do.
  class Error < StandardError
    attr_reader :text, :fields, :code

    def self.default_code
      ""
    end

    # what is the operation and the lock, text is for people, fields are those of the answer.
    def initialize(what = "", text = "", fields = {}, code = nil)
      super(what.empty? ? text : "#{what}: #{text}")
      @text = text
      @fields = fields
      @code = code || self.class.default_code
    end
  end

  # define makes the class of a code of the protocol.
  def self.define(name, parent, code)
    kind = Class.new(parent)
    kind.define_singleton_method(:default_code) { code }
    const_set(name, kind)
  end
  private_class_method :define

  # Another client held the lock for all of wait. fields has host, pid and user if they are known.
  define :Held, Error, "HELD"
  # The process of hold: "pid" already holds the lock or waits for it.
  define :Already, Held, "ALREADY"
  # Too few nodes could vote. This does not tell whether the lock is held.
  define :NoQuorum, Error, "NOQUORUM"
  # The lease ended without a release. From its deadline on, others can hold the lock.
  define :Lost, Error, "LOST"
  # The lease was already released.
  define :NotHeld, Error, "NOTHELD"
  # Waiting would have closed a cycle of waiters on this host.
  define :Deadlock, Error, "DEADLOCK"
  # The process that was to hold the lock (pid) ended during the wait.
  define :Cancelled, Error, "CANCELLED"
  # This user lacks the permission.
  define :Denied, Error, "DENIED"
  # A limit of the daemon's config is reached.
  define :Limit, Error, "LIMIT"
  # A name or an option is not valid.
  define :Invalid, Error, "OPTION"
  # There is no daemon, and none came while the call waited, or it hangs.
  define :Unavailable, Error, ""
  # The daemon is stopping, and no other one has started.
  define :Shutdown, Unavailable, "SHUTDOWN"
  # The result of force is unknown: ask who before you repeat it.
  define :Unknown, Error, "UNKNOWN"
  # A defect of the daemon. See its log.
  define :Internal, Error, "INTERNAL"
  # close was called on this client.
  define :Closed, Error, ""

  module Wire
    MAX_LINE = 1 << 16 # the daemon's lines have at most 4,096 bytes
    MAX_SOCKET_PATH = 107 # bytes
    HAS_BOOTTIME = Process.const_defined?(:CLOCK_BOOTTIME)
    CLOCK = HAS_BOOTTIME ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC # the latter runs during a suspension on macOS

    ERRORS = [Held, Already, NoQuorum, Lost, NotHeld, Deadlock, Cancelled, Denied, Limit, Shutdown, Unknown, Internal]
             .to_h { |kind| [kind.default_code, kind] }
             .merge(%w[SYNTAX VERB NAME OPTION TOOLONG].to_h { |code| [code, Invalid] }).freeze

    # The other side does not speak the protocol.
    class ProtocolError < StandardError; end

    # A line from the daemon. kind is OK, ERR, - or an event; code is that of ERR.
    Parsed = Struct.new(:tag, :kind, :code, :fields, :text)

    module_function

    # clock returns the time since the boot of this host, in seconds. A suspension of the host counts.
    def clock
      Process.clock_gettime(CLOCK)
    end

    # parse reads a line without its LF. Unknown fields and events are kept.
    def parse(raw)
      whole = raw.dup.force_encoding(Encoding::UTF_8)
      raise ProtocolError, "a line is not UTF-8: #{raw.b[0, 80].inspect}" unless whole.valid_encoding?

      head, _, text = whole.delete_suffix("\r").partition(" : ")
      words = head.split(/ +/).reject(&:empty?) # other white space of Unicode belongs to a value
      tag = head.start_with?("@") ? words.shift[1..] : ""
      kind = words.shift || ""
      code = kind == "ERR" ? words.shift || "" : ""
      unless %w[OK -].include?(kind) || !code.empty? || (tag.empty? && kind != "ERR" && kind.match?(/\A[A-Z]+\z/))
        raise ProtocolError, "#{whole[0, 80].inspect} is neither OK, ERR, - nor an event"
      end
      fields = words.take_while { |word| word != ":" }.to_h do |word|
        key, equals, value = word.partition("=")
        raise ProtocolError, "#{word[0, 80].inspect} is not key=value" if equals.empty?

        [key, unescape(value)]
      end
      Parsed.new(tag, kind, code, fields, text)
    end

    def unescape(value)
      return value unless value.include?("%")

      value.b.gsub(/%(\h\h)/) { Regexp.last_match(1).hex.chr }.force_encoding(Encoding::UTF_8)
    end

    # refusal returns the error of an ERR.
    def refusal(what, code, fields, text)
      kind = ERRORS.fetch(code, Error)
      said = text.empty? ? "refused by redlockd" : text
      kind.new(what, said.include?(code) || [Held, Lost].include?(kind) ? said : "#{code}: #{said}", fields, code)
    end

    # again returns a copy to raise, because several threads may raise the same error.
    def again(error, what = nil)
      return error.dup unless what

      error.class.new(what, error.text, error.fields, error.code)
    end

    # number returns a field, or 0 if it is missing or not a number.
    def number(fields, key)
      fields[key].to_s.match?(/\A-?[0-9]+\z/) ? fields[key].to_i : 0
    end

    # escape writes spaces, control characters, "=", ",", and "%" as %XX.
    def escape(text)
      text.gsub(/[\u0000- =,%\u007f-\u009f]/) { |c| c.bytes.map { |b| format("%%%02X", b) }.join }
    end

    # utf8 returns a text as UTF-8.
    def utf8(what, value)
      raise TypeError, "#{what} is #{value.inspect}: pass a String" unless value.is_a?(String) || value.is_a?(Symbol)

      text = value.to_s
      text = text.dup.force_encoding(Encoding::UTF_8) if text.encoding == Encoding::BINARY
      text = text.encode(Encoding::UTF_8)
      raise Invalid.new("", "#{what} #{value.inspect} is not UTF-8: write its bytes as hex (unpack1(\"H*\"))", {}, "NAME") unless text.valid_encoding?

      text
    rescue EncodingError
      raise Invalid.new("", "#{what} #{value.inspect} cannot be written as UTF-8", {}, "NAME")
    end

    # check_names returns the names, and as a request has them.
    def check_names(names)
      names = names.map { |name| utf8("name", name) }
      raise Invalid.new("", "#{names.size} names: 1 to 100 can be locked together, as lock(\"a\", \"b\")", {}, "NAME") unless names.size.between?(1, 100)

      names.each do |name|
        next if name.bytesize.between?(1, 200)

        raise Invalid.new("", "the name #{name[0, 50].inspect} has #{name.bytesize} bytes: 1 to 200 are allowed", {}, "NAME")
      end
      joined = names.map { |name| escape(name) }.join(",")
      raise Invalid.new("", "the names have #{joined.bytesize} bytes together: at most 3000", {}, "NAME") if joined.bytesize > 3000

      [names, joined]
    end

    # milliseconds returns a duration that was given in seconds, rounded up. A number of ActiveSupport
    # (5.minutes) is one, too.
    def milliseconds(option, value)
      value = value.to_f if value.respond_to?(:to_f) && value.class.name == "ActiveSupport::Duration" # its class hides
      unless value.is_a?(Numeric) && value.real?
        raise TypeError, "#{option}: #{value.inspect}: pass seconds, such as #{option}: 5 or #{option}: 0.25"
      end
      unless value >= 0 && value <= 1e9
        hint = option == :wait ? "nil waits without a bound" : "leave it out for the daemon's default"
        raise Invalid.new("", "#{option}: #{value.inspect}: pass seconds from 0 to 1e9 (#{hint})")
      end
      (value * 1000).to_r.round(6).ceil
    end

    def choice(option, value, choices)
      text = value.is_a?(Symbol) ? value.to_s : value
      raise Invalid.new("", "#{option}: #{value.inspect}: pass one of #{choices.map(&:inspect).join(', ')}") unless choices.include?(text)

      text
    end

    def whole(option, value, most)
      raise TypeError, "#{option}: #{value.inspect}: pass a whole number" unless value.is_a?(Integer)
      raise Invalid.new("", "#{option}: #{value}: pass 1 to #{most}") unless value.between?(1, most)

      "#{option}=#{value}"
    end

    # socket_path returns the path of the socket: as given, $REDLOCK_SOCKET, or the default.
    def socket_path(path)
      path = path.to_path if path.respond_to?(:to_path)
      raise TypeError, "#{path.inspect}: pass the path of redlockd's socket as a String" unless path.nil? || path.is_a?(String)

      path = [path, ENV["REDLOCK_SOCKET"]].find { |one| one && !one.empty? } || DEFAULT_SOCKET
      raise Invalid.new("", "#{path} is a URL: redlockd listens on a Unix socket of this host, give the path of the socket") if path.include?("://")

      path
    end

    # dial_error returns the error of a failed connect, and whether another attempt would fail the same way.
    def dial_error(path, error)
      where = "redlockd's socket #{path}"
      why = error.message
      to = "set the path or REDLOCK_SOCKET to that of redlockd"
      case error
      when Errno::EACCES, Errno::EPERM
        return [Denied.new("", "not allowed to open #{where}: this user is not in the group of the socket (#{why})"), true]
      when ArgumentError
        return [Invalid.new("", "#{where} has #{path.bytesize} bytes: a path of a socket has at most #{MAX_SOCKET_PATH}"), true]
      when Errno::EPROTOTYPE
        return [Invalid.new("", "#{path} is not a stream socket: #{to}"), true]
      end
      return [Invalid.new("", "#{path} is not a socket: #{to} (#{DEFAULT_SOCKET})"), true] if File.exist?(path) && !File.socket?(path)

      case error
      when Errno::ENOENT, Errno::ECONNREFUSED
        [Unavailable.new("", "nobody listens on #{where}: is redlockd running? (#{why})"), false]
      when Errno::EAGAIN
        [Unavailable.new("", "#{where} takes no more connections: redlockd hangs, or is busy"), false]
      else
        [Unavailable.new("", "#{where}: #{why}"), false]
      end
    end
  end

  # The names and options of LOCK.
  class Request
    DURATIONS = %i[ttl max min guard linger beat].freeze
    OPTIONS = (%i[wait mode slots hold pid note release_wait on_lost] + DURATIONS).freeze

    # Options that programs know from other libraries, and ours.
    OTHERS = {
      timeout: "ttl: is the lease time, wait: how long to wait, max: the longest time to hold it",
      blocking: "wait: 0 does not wait",
      expiration: "ttl: is the lease time; redlockd extends the lease",
      expires_in: "ttl: is the lease time; redlockd extends the lease",
      life: "ttl: is the lease time; redlockd extends the lease",
      acquire: "wait: is how long to wait; a waiter is notified",
      retry_count: "wait: is how long to wait; a waiter is notified",
      retry_delay: "wait: is how long to wait; a waiter is notified",
    }.freeze

    attr_reader :names, :words, :options, :wait, :hold, :guard, :ttl, :max, :release_wait, :on_lost

    def initialize(names, given)
      unknown = given.keys - OPTIONS
      unless unknown.empty?
        hint = OTHERS.fetch(unknown.first.to_sym) { "there are #{OPTIONS.map { |o| "#{o}:" }.join(' ')}" }
        raise ArgumentError, "lock has no option #{unknown.first}: #{hint}"
      end
      @names, @words = Wire.check_names(names)
      @wait = given[:wait] && Wire.milliseconds(:wait, given[:wait]) / 1000.0
      @hold = Wire.choice(:hold, given.fetch(:hold, "conn"), %w[conn ttl pid])
      @release_wait = given[:release_wait] && Wire.milliseconds(:release_wait, given[:release_wait]) / 1000.0
      @on_lost = given[:on_lost]
      raise TypeError, "on_lost: #{@on_lost.inspect}: pass a Proc" unless @on_lost.nil? || @on_lost.respond_to?(:call)

      words = []
      words << "mode=shared" if Wire.choice(:mode, given.fetch(:mode, "exclusive"), %w[exclusive shared]) == "shared"
      words << "hold=#{@hold}" if @hold != "conn"
      words << Wire.whole(:slots, given[:slots], 1000) unless given[:slots].nil?
      unless given[:pid].nil?
        raise Invalid.new("", "pid: #{given[:pid]}: it needs hold: \"pid\"") if @hold != "pid"

        words << Wire.whole(:pid, given[:pid], 1 << 31)
      end
      ms = DURATIONS.reject { |o| given[o].nil? }.to_h { |o| [o, Wire.milliseconds(o, given[o])] }
      ms.each { |option, value| words << "#{option}=#{value}" }
      unless given[:note].nil?
        note = Wire.utf8("note", given[:note])
        raise Invalid.new("", "the note has #{note.bytesize} bytes: at most 200") if note.bytesize > 200

        words << "note=#{Wire.escape(note)}"
      end
      @guard, @ttl, @max = %i[guard ttl max].map { |o| ms.fetch(o, 0) / 1000.0 }
      @outlasts = @hold != "conn" || ms.fetch(:linger, 0).positive?
      @options = words.map { |word| " #{word}" }.join
    end

    # outlasts? tells whether a grant stays when the connection ends.
    def outlasts?
      @outlasts
    end
  end
end
