// Locks of redlockd, the lock daemon of this host. See index.d.ts, and CLIENTS of redlockd.
'use strict'
const { setMaxListeners } = require('node:events')
const { inspect } = require('node:util')

const { Core, endOf, Released } = require('./core.js')
const wire = require('./wire.js')
const { Already, Cancelled, Closed, Deadlock, Denied, Held, Internal, Invalid, Limit, Lost, NoQuorum, NotHeld, RedlockdError, Shutdown, Unavailable, Unknown } = wire

Symbol.asyncDispose ??= Symbol('Symbol.asyncDispose') // Node 18

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

  async release() {
    try {
      await this.#core.ask(this.#core.release(this))
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
class Client {
  #core

  constructor(path, { patience = 5000 } = {}) {
    this.#core = new Core(wire.socketPath(path), wire.milliseconds('patience', patience), (core, call, fields) => new Lease(core, call, fields))
  }

  async lock(names, options = {}) {
    const request = new wire.Request(names, options)
    if (request.signal) setMaxListeners(0, request.signal) // many locks may wait with one signal
    return (await this.#ask(this.#core.lock(request), request.signal)).lease
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
      result = await routine(lease.signal, lease)
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
