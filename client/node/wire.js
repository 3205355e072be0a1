// Lines of the protocol, options, and errors.
'use strict'
const fs = require('node:fs')
const { performance } = require('node:perf_hooks')

const defaultSocket = '/run/redlockd/redlockd.sock'
const maxSocketPath = 107 // bytes
const maxLine = 1 << 16 // the daemon's lines have at most 4,096 bytes

// RedlockdError is an error of redlockd. Its message says what happened, to which lock, and what to do.
class RedlockdError extends Error {
  // what is the operation and the lock, text is for people, fields are those of the answer.
  constructor(what, text, fields = {}, code = '') {
    super(what ? `${what}: ${text}` : text)
    this.name = new.target.name
    this.text = text
    this.fields = fields
    this.code = code || new.target.code || ''
  }
}

// Held: another client held the lock for all of wait. Of several names, fields.blocked is the one that is held.
class Held extends RedlockdError {
  static code = 'HELD'
}
// Already: the process of hold: 'pid' already holds the lock or waits for it.
class Already extends Held {
  static code = 'ALREADY'
}
// NoQuorum: too few nodes could vote. This does not tell whether the lock is held.
class NoQuorum extends RedlockdError {
  static code = 'NOQUORUM'
}
// Lost: the lease ended without a release. From its deadline on, others can hold the lock.
class Lost extends RedlockdError {
  static code = 'LOST'
}
// NotHeld: the lease was already released.
class NotHeld extends RedlockdError {
  static code = 'NOTHELD'
}
// Deadlock: waiting would have closed a cycle of waiters on this host.
class Deadlock extends RedlockdError {
  static code = 'DEADLOCK'
}
// Cancelled: the process that was to hold the lock (pid) ended during the wait.
class Cancelled extends RedlockdError {
  static code = 'CANCELLED'
}
// Denied: this user lacks the permission.
class Denied extends RedlockdError {
  static code = 'DENIED'
}
// Limit: a limit of the daemon's config is reached.
class Limit extends RedlockdError {
  static code = 'LIMIT'
}
// Invalid: a name or an option is not valid.
class Invalid extends RedlockdError {
  static code = 'OPTION'
}
// Unavailable: there is no daemon, and none came while the call waited, or it hangs.
class Unavailable extends RedlockdError {}
// Shutdown: the daemon is stopping, and no other one has started.
class Shutdown extends Unavailable {
  static code = 'SHUTDOWN'
}
// Unknown: redlockd stopped or was restarted during force(). See who() before you repeat it.
class Unknown extends RedlockdError {
  static code = 'UNKNOWN'
}
// Internal: a defect of the daemon. See its log.
class Internal extends RedlockdError {
  static code = 'INTERNAL'
}
// Closed: close() was called on this client.
class Closed extends RedlockdError {}

const byCode = new Map([Held, Already, NoQuorum, Lost, NotHeld, Deadlock, Cancelled, Denied, Limit, Shutdown, Unknown, Internal].map((kind) => [kind.code, kind]))
for (const code of ['SYNTAX', 'VERB', 'NAME', 'OPTION', 'TOOLONG']) byCode.set(code, Invalid)

// ProtocolError: the other side does not speak the protocol.
class ProtocolError extends Error {}

// again returns the same error for another call.
const again = (error, what) => new error.constructor(what, error.text, error.fields, error.code)

// here returns an error with the stack of its caller, so that it names the line of the program. An error
// is made when an answer comes, and a cause is thrown more than once.
function here(error) {
  if (error instanceof RedlockdError) Error.captureStackTrace(error, here)
  return error
}

// refusal returns the error of an ERR.
function refusal(what, code, fields, text) {
  const kind = byCode.get(code) ?? RedlockdError
  const said = text || 'refused by redlockd'
  return new kind(what, kind === Held || kind === Lost || said.includes(code) ? said : `${code}: ${said}`, fields, code)
}

// parse reads a line without its LF. Unknown fields and events are kept.
function parse(line) {
  const colon = line.indexOf(' : ')
  const text = colon < 0 ? '' : line.slice(colon + 3).replace(/[ \r]+$/, '')
  const words = (colon < 0 ? line : line.slice(0, colon)).split(/[ \r]+/)
  let i = 0
  const tag = words[0][0] === '@' ? words[i++].slice(1) : ''
  const kind = words[i++] ?? ''
  const code = kind === 'ERR' ? words[i++] ?? '' : ''
  const isEvent = !tag && kind !== 'ERR' && /^[A-Z]+$/.test(kind)
  if (kind !== 'OK' && kind !== '-' && !code && !isEvent) {
    throw new ProtocolError(`${JSON.stringify(line.slice(0, 80))} is neither OK, ERR, - nor an event`)
  }
  const fields = {}
  for (; i < words.length && words[i] !== ':'; i++) {
    const word = words[i]
    if (word === '') continue
    const equals = word.indexOf('=')
    if (equals < 0) throw new ProtocolError(`${JSON.stringify(word.slice(0, 80))} is not key=value`)
    const key = word.slice(0, equals)
    const value = word.slice(equals + 1)
    if (key === 'also') fields.also = value.split(',').map(unescape)
    else fields[key] = value.includes('%') ? unescape(value) : value
  }
  return { tag, kind, code, fields, text }
}

function unescape(value) {
  try {
    return decodeURIComponent(value)
  } catch {
    throw new ProtocolError(`${JSON.stringify(value.slice(0, 80))} has a wrong %XX`)
  }
}

// number returns a field, or 0 if it is missing or not a number.
const number = (fields, key) => Number(fields[key] ?? 0) || 0

// escape writes spaces, control characters, "=", ",", and "%" as %XX.
// eslint-disable-next-line no-control-regex
const escape = (text) => text.replace(/[\0- =,%\x7f-\x9f]/g, (c) => (c < '\x80' ? `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}` : encodeURIComponent(c)))

// checkText returns how many bytes a text has as UTF-8.
function checkText(what, value) {
  if (typeof value !== 'string') throw new TypeError(`${what} is ${describe(value)}: pass a string`)
  if (/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(value)) {
    throw new Invalid('', `${what} ${JSON.stringify(value)} is not UTF-8: it has lone surrogates (bytes? use toString('hex'))`, {}, 'NAME')
  }
  return Buffer.byteLength(value)
}

const describe = (value) => (typeof value === 'string' ? JSON.stringify(value) : Array.isArray(value) ? 'an array' : String(value?.constructor?.name === 'Object' ? 'an object' : value))

// checkNames returns a list of names, and the names as a request has them.
function checkNames(names) {
  const list = Array.isArray(names) ? [...names] : [names]
  if (list.length < 1 || list.length > 100) {
    throw new Invalid('', `${list.length} names: 1 to 100 can be locked together, as lock(['a', 'b'])`, {}, 'NAME')
  }
  for (const name of list) {
    const size = checkText('name', name)
    if (size < 1 || size > 200) throw new Invalid('', `the name ${JSON.stringify(name.slice(0, 50))} has ${size} bytes: 1 to 200 are allowed`, {}, 'NAME')
  }
  const words = list.map(escape).join(',')
  if (Buffer.byteLength(words) > 3000) throw new Invalid('', `the names have ${Buffer.byteLength(words)} bytes together: at most 3000`, {}, 'NAME')
  return { list, words }
}

// milliseconds returns a duration, rounded up.
function milliseconds(option, value) {
  if (typeof value !== 'number') throw new TypeError(`${option}: ${describe(value)}: pass milliseconds as a number, such as ${option}: 5000`)
  if (!(value >= 0 && value <= 1e12)) {
    const hint = option === 'wait' ? 'undefined waits without a bound' : "leave it out for the daemon's default"
    throw new Invalid('', `${option}: ${value}: pass milliseconds from 0 to 1e12 (${hint})`)
  }
  return Math.ceil(value)
}

function whole(option, value, most) {
  if (typeof value !== 'number') throw new TypeError(`${option}: ${describe(value)}: pass a whole number`)
  if (!Number.isInteger(value) || value < 1 || value > most) throw new Invalid('', `${option}: ${value}: pass a whole number from 1 to ${most}`)
  return ` ${option}=${value}`
}

function choice(option, value, choices) {
  if (!choices.includes(value)) throw new Invalid('', `${option}: ${describe(value)}: pass one of ${choices.map((c) => `'${c}'`).join(', ')}`)
  return value === choices[0] ? '' : ` ${option}=${value}`
}

const durations = ['ttl', 'max', 'min', 'guard', 'linger', 'beat']
const known = new Set(['wait', 'mode', 'slots', 'hold', 'pid', 'note', 'signal', 'reentrant', 'releaseWait', ...durations])

const useWait = 'use wait: how long to wait, in milliseconds'
const useMax = 'use max: the longest holding time'

// instead names what takes the place of settings of node-redlock, async-lock, redis-semaphore and others.
const instead = {
  retryCount: useWait,
  timeout: `${useWait}; ttl is the lease time`,
  acquireTimeout: useWait,
  acquireAttemptsLimit: useWait,
  retries: useWait,
  blocking: 'use wait: 0, or tryLock',
  maxPending: 'use wait: 0, or tryLock',
  maxExecutionTime: useMax,
  maxOccupationTime: useMax,
  lockTimeout: 'use ttl: the lease time; the daemon extends the lease',
  expire: 'use ttl: the lease time; the daemon extends the lease',
  refreshInterval: 'the daemon extends the lease: leave it out',
  domainReentrant: 'use reentrant',
  shared: "use mode: 'shared'",
  retryDelay: 'use wait: waiters are notified, and do not retry',
  retryJitter: 'waiters are notified, and do not retry: leave it out',
  driftFactor: 'redlockd knows the drift: leave it out',
  automaticExtensionThreshold: 'the daemon extends the lease: leave it out',
}

// Request has the names and options of LOCK.
class Request {
  constructor(names, options) {
    if (options === null || typeof options !== 'object') {
      throw new TypeError(`the options are ${describe(options)}: pass an object, such as { wait: 5000, ttl: 10000 }`)
    }
    for (const key of Object.keys(options)) {
      if (!known.has(key)) throw new TypeError(`the option ${key} is not known: ${instead[key] ?? `these are: ${[...known].join(', ')}`}`)
    }
    const { list, words } = checkNames(names)
    const { wait, mode = 'exclusive', slots, hold = 'conn', pid, note, signal, reentrant, releaseWait } = options
    this.names = list
    this.mode = mode
    this.slots = slots
    this.reentrant = reentrant === true
    this.releaseWait = releaseWait === undefined ? undefined : milliseconds('releaseWait', releaseWait)
    this.words = words
    this.wait = wait === undefined ? undefined : milliseconds('wait', wait)
    this.hold = hold
    this.signal = signal
    this.options = choice('mode', mode, ['exclusive', 'shared']) + choice('hold', hold, ['conn', 'ttl', 'pid'])
    if (slots !== undefined) this.options += whole('slots', slots, 1000)
    if (pid !== undefined) {
      if (hold !== 'pid') throw new Invalid('', `pid: ${pid}: it needs hold: 'pid'`)
      this.options += whole('pid', pid, 2 ** 31)
    }
    for (const option of durations) {
      this[option] = options[option] === undefined ? 0 : milliseconds(option, options[option])
      if (options[option] !== undefined) this.options += ` ${option}=${this[option]}`
    }
    if (note !== undefined) {
      if (checkText('note', note) > 200) throw new Invalid('', `the note has ${Buffer.byteLength(note)} bytes: at most 200`)
      this.options += ` note=${escape(note)}`
    }
    if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError(`signal: ${describe(signal)}: pass an AbortSignal`)
    this.outlasts = hold !== 'conn' || this.linger > 0 // a grant stays when the connection ends
  }
}

let uptime // the descriptor of /proc/uptime
try {
  uptime = fs.openSync('/proc/uptime')
} catch {
  // not Linux
}
const room = Buffer.alloc(32)

// hasBoottime tells whether clock is CLOCK_BOOTTIME.
const hasBoottime = uptime !== undefined

// clockLag is by how many milliseconds clock may be late.
const clockLag = hasBoottime ? 10 : 0

// clock returns the time since the boot of this host, in milliseconds. Node has no CLOCK_BOOTTIME, but
// /proc/uptime has. Elsewhere it is a monotonic clock.
function clock() {
  if (uptime === undefined) return performance.now()
  const n = fs.readSync(uptime, room, 0, room.length, 0)
  return Math.round(parseFloat(room.latin1Slice(0, n)) * 1000)
}

// socketPath returns the path of the socket: as given, $REDLOCK_SOCKET, or the default.
function socketPath(path) {
  if (path !== undefined && typeof path !== 'string') throw new TypeError(`the path is ${describe(path)}: pass the path of redlockd's socket as a string`)
  const chosen = path || process.env.REDLOCK_SOCKET || defaultSocket
  if (chosen.includes('://')) throw new Invalid('', `${chosen} is a URL: redlockd listens on a Unix socket of this host, give the path of the socket`)
  return chosen
}

// dialError returns the error of a failed connect, and whether another attempt would fail the same way.
function dialError(path, error) {
  const where = `redlockd's socket ${path}`
  const size = Buffer.byteLength(path)
  if (size > maxSocketPath) return [new Invalid('', `${where} has ${size} bytes: a path of a socket has at most ${maxSocketPath}`), true]
  if (error.code === 'EACCES' || error.code === 'EPERM') {
    return [new Denied('', `not allowed to open ${where}: this user is not in the group of the socket (${error.code})`), true]
  }
  const file = fs.statSync(path, { throwIfNoEntry: false })
  if (file && !file.isSocket()) return [new Invalid('', `${path} is not a socket: set the path or REDLOCK_SOCKET to that of redlockd (${defaultSocket})`), true]
  if (error.code === 'EPROTOTYPE') return [new Invalid('', `${path} is not a stream socket: set the path or REDLOCK_SOCKET to that of redlockd`), true]
  if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') {
    return [new Unavailable('', `nobody listens on ${where}: is redlockd running? (${error.code})`), false]
  }
  if (error.code === 'EAGAIN') return [new Unavailable('', `${where} takes no more connections: redlockd hangs, or is busy`), false]
  return [new Unavailable('', `${where}: ${error.message}`), false]
}

module.exports = {
  again,
  Already,
  Cancelled,
  checkNames,
  clock,
  clockLag,
  Closed,
  Deadlock,
  defaultSocket,
  Denied,
  dialError,
  escape,
  hasBoottime,
  Held,
  here,
  Internal,
  Invalid,
  Limit,
  Lost,
  maxLine,
  milliseconds,
  NoQuorum,
  NotHeld,
  number,
  parse,
  ProtocolError,
  RedlockdError,
  refusal,
  Request,
  Shutdown,
  socketPath,
  Unavailable,
  Unknown,
}
