// Locks of redlockd, the lock daemon of this host. See index.d.ts, and CLIENTS of redlockd.
'use strict'
const { AsyncLocalStorage } = require('node:async_hooks')
const { EventEmitter, setMaxListeners } = require('node:events')
const { setTimeout: sleep } = require('node:timers/promises')
const { inspect } = require('node:util')

const { Core, endOf, Released } = require('./core.js')
const wire = require('./wire.js')
const { Already, Cancelled, Closed, Deadlock, Denied, Held, Internal, Invalid, Limit, Lost, NoQuorum, NotHeld, RedlockdError, Shutdown, Unavailable, Unknown } = wire

Symbol.asyncDispose ??= Symbol('Symbol.asyncDispose') // Node 18

// blocks has the leases of the using() around, as { path, lease, outer }.
const blocks = new AsyncLocalStorage()

// Lease is a lock that is held.
class Lease {
  #core
  #lost // an AbortController, once the program wants its signal

  constructor(core, call, fields) {
    const { request } = call
    this.#core = core
    this.names = request.names
    this.name = request.names.join(',')
    this.id = fields.lease
    this.fence = wire.number(fields, 'fence')
    this.slot = wire.number(fields, 'slot')
    this.cause = undefined // why it ended
    const internal = {
      _owner: call.owner,
      _words: request.words,
      _mode: request.mode,
      _slots: request.slots,
      _releaseWait: request.releaseWait,
      _again: 0, // how many locks with reentrant it has, besides the first
      _hold: request.hold,
      _ownGuard: request.guard,
      _ttl: request.ttl,
      _deadline: 0,
      _guard: 0,
      _longest: 0, // the longest validity that an answer gave
      _bound: 0, // a deadline from here on is caused by max; 0: no bound
      _timer: undefined,
      _tickDue: 0, // when the timer should fire
      _lateUntil: 0, // the timer was late, and the daemon is awaited until then before the lease is lost
      _lateBy: 0,
      _lateCheck: undefined, // the CHECK that asks it
      _checking: false,
      _detached: false, // its connection has ended, and no other one has resumed it yet
      _unwatched: false, // a process holds it, and the connection that would report its loss has ended
      _maybeKept: false, // RESUME was refused, but the daemon may keep it
      _unlockDue: false, // lost here, but the daemon may keep it: unlock it at the deadline
      _unlockAt: 0,
      _unlocking: false, // the holder has stopped
    }
    for (const key in internal) Object.defineProperty(this, key, { value: internal[key], writable: true })
  }

  get lost() {
    return this.cause !== undefined && !(this.cause instanceof Released)
  }

  get signal() {
    if (!this.#lost) {
      this.#lost = new AbortController()
      const { signal } = this.#lost
      Object.defineProperty(signal, 'error', { get: () => signal.reason }) // its name in node-redlock
      if (this.lost) this.#lost.abort(this.cause)
    }
    return this.#lost.signal
  }

  check() {
    this.#core.confirm(this)
    if (this.cause) throw wire.here(this.cause)
  }

  remaining() {
    const now = wire.clock()
    return this.cause || now >= endOf(this) ? 0 : this._deadline - now - wire.clockLag
  }

  // owned is check without an exception.
  owned() {
    this.#core.confirm(this)
    return this.cause === undefined
  }

  async release({ wait = this._releaseWait } = {}) {
    const limit = wait === undefined ? undefined : wire.milliseconds('wait', wait)
    if (!this.cause && this._again > 0) {
      this._again--
      return
    }
    try {
      await this.#core.ask(this.#core.release(this), undefined, limit)
    } catch (error) {
      throw wire.here(error)
    }
  }

  async extend(ttl) {
    await this.#ask('EXTEND', ttl === undefined ? '' : ` ttl=${wire.milliseconds('ttl', ttl)}`)
  }

  async beat() {
    await this.#ask('BEAT', '')
  }

  async downgrade() {
    await this.#ask('EXTEND', ' mode=shared')
  }

  async #ask(verb, options) {
    try {
      if (this.cause) throw this.cause
      await this.#core.ask(this.#core.about(verb, this, options))
    } catch (error) {
      throw wire.here(error)
    }
  }

  async [Symbol.asyncDispose]() {
    if (!(this.cause instanceof Released)) await this.release()
  }

  // toJSON and inspect leave out the id, which is a secret.
  toJSON() {
    const { names, fence, slot } = this
    return { names, fence, slot, state: this.#state(), remaining: this.remaining() }
  }

  [inspect.custom]() {
    return `redlockd.Lease ${JSON.stringify(this.name)}: ${this.#state()}, fence ${this.fence}, ${this.remaining()} ms remain`
  }

  #state() {
    if (!this.cause) return 'held'
    return this.lost ? 'lost' : 'released'
  }

  _lost() {
    this.#lost?.abort(this.cause)
  }
}

// Client is a connection to redlockd, made when it is first used.
class Client extends EventEmitter {
  #core

  constructor(path, { patience = 5000, ...unknown } = {}) {
    super()
    for (const key in unknown) throw new TypeError(`the setting ${key} is not known: this is: patience`)
    this.#core = new Core(
      wire.socketPath(path),
      wire.milliseconds('patience', patience),
      (core, call, fields) => new Lease(core, call, fields),
      (...event) => this.emit(...event),
    )
  }

  async lock(names, options = {}) {
    const request = new wire.Request(names, options)
    const again = this.#isAround(request)
    if (again) return again
    if (request.signal) setMaxListeners(0, request.signal) // many locks may wait with one signal
    return (await this.#ask(this.#core.lock(request), request.signal)).lease
  }

  // #isAround looks for a using() around that has one of the names. With reentrant it returns its lease,
  // once more. Otherwise this lock may wait for the end of a block that waits for this lock.
  #isAround({ names, mode, slots, reentrant, wait, hold }) {
    for (let block = blocks.getStore(); block; block = block.outer) {
      const { lease, path } = block
      if (lease.cause || path !== this.#core.path || !names.some((name) => lease.names.includes(name))) continue
      if (reentrant) {
        if (String([...names].sort()) === String([...lease.names].sort()) && mode === lease._mode && slots === lease._slots) {
          lease._again++
          return lease
        }
        throw new Already(`lock "${names.join(',')}"`, `this using() is inside one of "${lease.name}", with other names, mode or slots: release that first`)
      }
      if (wait === undefined && hold !== 'pid' && !slots && (mode === 'exclusive' || lease._mode === 'exclusive')) {
        process.emitWarning(`lock "${names.join(',')}" may wait for itself: it is called inside using("${lease.name}", …), which holds it (reentrant: true enters again)`, 'RedlockdWarning')
      }
    }
  }

  async tryLock(names, options = {}) {
    if (options.wait !== undefined) throw new TypeError('tryLock does not wait: use lock')
    try {
      return await this.lock(names, { ...options, wait: 0 })
    } catch (error) {
      if (error instanceof Held) return null
      throw error
    }
  }

  async #ask(call, signal) {
    try {
      return await this.#core.ask(call, signal)
    } catch (error) {
      throw wire.here(error)
    }
  }

  async using(names, options, settings, routine) {
    if (typeof options === 'function') [routine, options] = [options, {}]
    if (typeof settings === 'function') [routine, settings] = [settings, {}]
    if (typeof routine !== 'function') throw new TypeError('using needs an async function: using(names, { wait: 5000 }, async (signal, lease) => …)')
    const given = typeof options === 'number' ? { ttl: options } : options
    const lease = await this.lock(names, { ...given, ...settings })
    let result
    try {
      result = await blocks.run({ path: this.#core.path, lease, outer: blocks.getStore() }, () => routine(lease.signal, lease))
    } catch (error) {
      await lease[Symbol.asyncDispose]().catch(() => {}) // the routine's own error is what counts
      throw error
    }
    await lease[Symbol.asyncDispose]()
    return result
  }

  async who(name) {
    return (await this.#ask(this.#core.question('WHO', wire.checkNames([name]).words))).lines
  }

  async locked(name) {
    return (await this.who(name)).some((line) => !line.waiting)
  }

  async *watch(name, { every = 1000, signal } = {}) {
    const { words } = wire.checkNames([name])
    const pause = wire.milliseconds('every', every)
    const seen = ({ host, pid, user, slot, state, waiting }) => JSON.stringify([host, pid, user, slot, state, waiting])
    for (let before; ; await sleep(pause, undefined, { signal })) {
      const holders = (await this.#ask(this.#core.question('WHO', words), signal)).lines
      const now = holders.map(seen).sort().join()
      if (now !== before) yield holders
      before = now
    }
  }

  async force(name) {
    const { n, also = [] } = (await this.#ask(this.#core.question('FORCE', wire.checkNames([name]).words))).reply
    return { holders: Number(n), also }
  }

  async list() {
    return (await this.#ask(this.#core.question('LIST'))).lines
  }

  async status() {
    const call = await this.#ask(this.#core.question('STATUS'))
    return { ...call.reply, text: call.text, nodeStates: call.lines }
  }

  get reconnects() {
    return Math.max(0, this.#core.links - 1)
  }

  get resumed() {
    return this.#core.resumed
  }

  async close() {
    await this.#core.close()
  }

  async [Symbol.asyncDispose]() {
    await this.close()
  }

  // inspect shows counts, also to tests.
  [inspect.custom]() {
    const { path, link, leases, flight, tags, timers } = this.#core
    return `redlockd.Client ${path}: ${link ? 'connected' : 'not connected'}, ${leases.size} leases, ${flight.size} calls, ${tags.size} tags, ${timers.size} timers`
  }
}

// The names are literal, so that import finds them too.
module.exports = { Client, Already, Cancelled, Closed, Deadlock, Denied, Held, Internal, Invalid, Limit, Lost, NoQuorum, NotHeld, RedlockdError, Shutdown, Unavailable, Unknown }
