// What a client knows and decides: its connection, calls, leases and timers.
//
// A call may be sent more than once: on a new connection, and after BACK. Each sending has a tag of its
// own, which is never used again, and the first answer counts. A LOCK has an id=, so that a second one
// gets the grant of the first.
'use strict'
const { randomBytes } = require('node:crypto')
const fs = require('node:fs')
const net = require('node:net')
const { performance } = require('node:perf_hooks')
const { StringDecoder } = require('node:string_decoder')
const { clearTimeout, setTimeout } = require('node:timers') // as they are now: a test may replace the global ones later

const wire = require('./wire.js')
const { again, clock, clockLag, Closed, Lost, NotHeld, number, ProtocolError, Shutdown, Unavailable, Unknown } = wire

// All times are in milliseconds.
const minCheck = 10 // the shortest time before the daemon is asked again
const retryUnlock = 1000 // between a refusal of an UNLOCK and the next try
const retryResume = 250 // between a temporary refusal and the next RESUME
const resendPause = 250 // between LIMIT as the answer to a resend and the next one
const maxLimits = 20 // such refusals of a call
const maxShutdowns = 3 // connections on which a call is refused with SHUTDOWN
const byeTimeout = 1000 // how long answers are read after the daemon said that it stops
const greetingTimeout = 5000 // for the answer to HELLO
const clockTolerance = 10 // by which two readings of one clock may seem to differ
const minPause = 10 // between two attempts to connect
const maxPause = 1000
const maxUnwritten = 1 << 20 // bytes that stay unwritten if the daemon does not read
const longest = 2 ** 31 - 1 // of a timer
const lateTolerance = 250 // a timer that is later means that this process was stopped, or did not return to its event loop
const lateCheck = 2000 // how long the daemon is then awaited before a lease is lost

// The daemon bounds the requests in flight on one connection (4,096 by default). Locks may wait for
// long, and must leave room for the requests that end their wait.
const rooms = { LOCK: 3072, RESUME: 256, other: 512 }

// The states of a call.
const queued = 'queued'
const waiting = 'waiting'
const abandoned = 'abandoned' // nobody waits for it
const done = 'done'

// What is left to do for a lease that has ended: see Core.finish.
const toForget = 'forget'
const toUnlock = 'unlock at the deadline'
const unlocksNow = 'unlock now'

// strayLock and stray mark the tag of a call that was answered under another one.
const strayLock = Symbol('stray LOCK')
const stray = Symbol('stray')

const room = Buffer.alloc(1 << 16)
const never = new Int32Array(new SharedArrayBuffer(4))
const turn = Promise.resolve() // unlike process.nextTick, tests cannot replace it

const ownedByLease = new Set(['CHECK', 'EXTEND', 'BEAT'])

// Call is a request and its answer.
class Call {
  constructor(verb, words, lease, request) {
    this.verb = verb
    this.words = words
    this.lease = lease
    this.request = request // of LOCK
    this.room = verb in rooms ? verb : 'other'
    this.what = verb.toLowerCase() + (lease ? ` "${lease.name}"` : request ? ` "${request.names.join(',')}"` : '') // for errors
    this.state = queued
    this.owner = ''
    this.tags = [] // on this connection
    this.sentOn = 0 // the last connection; 0: never sent
    this.resent = false
    this.started = 0
    this.until = Infinity // how long it waits for a connection
    this.fails = 0 // Core.fails when it began
    this.limits = 0
    this.shutdowns = 0
    this.lines = []
    this.reply = undefined // the fields of OK
    this.text = ''
    this.error = undefined
    this.notify = () => {} // called once, at the end, if a caller waits
  }
}

// Released is the cause of a lease that was released.
class Released extends NotHeld {}

// Core is the state of a client, and its connection.
class Core {
  constructor(path, patience, newLease, emit) {
    this.path = path
    this.patience = patience
    this.newLease = newLease
    this.emit = (...event) => void turn.then(() => emit(...event)) // what a listener throws is none of this class
    this.socket = undefined
    this.link = 0 // the number of the connection; 0: none that may be used
    this.links = 0
    this.greeting = false // a new connection was not greeted yet
    this.ahead = 0 // by how much the daemon's clock is ahead of this one, at most
    this.greetedAt = 0 // when HELLO was sent
    this.resumed = 0
    this.closed = false
    this.leases = new Map() // by id: held, or still to be unlocked
    this.flight = new Set()
    this.tags = new Map()
    this.lastTag = 0
    this.busy = { LOCK: 0, RESUME: 0, other: 0 }
    this.queues = { LOCK: [], RESUME: [], other: [] }
    this.timers = new Set()
    this.out = ''
    this.lostAt = undefined // when the last connection ended
    this.connectedAt = 0
    this.dialAt = 0 // when the next attempt to connect may be made
    this.dialTimer = undefined
    this.tries = 0
    this.fails = 0 // attempts that failed
    this.why = new Unavailable('', 'not connected yet')
    this.bye = undefined // the timer that ends the connection after BYE
    this.refused = undefined // why the daemon closes a new connection
    this.input = '' // a line that is not complete
    this.lines = [] // read, and not handled yet
    this.idPrefix = randomBytes(6).toString('hex') + '.'
    this.owners = 0
    this.settled = () => {} // close waits for a release
  }

  // --- timers

  // after runs f after a time, unless the client is closed.
  after(ms, f) {
    const timer = setTimeout(
      () => {
        this.timers.delete(timer)
        f()
      },
      Math.min(Math.max(0, ms), longest),
    )
    timer.unref() // the connection keeps the process running while it is in use
    this.timers.add(timer)
    return timer
  }

  cancelTimer(timer) {
    clearTimeout(timer)
    this.timers.delete(timer)
  }

  // --- calls

  // lock returns a call that takes a lock, with an owner of its own: all locks exclude each other.
  lock(request) {
    const n = (++this.owners).toString(16)
    const call = new Call('LOCK', `${request.words}${request.options} id=${this.idPrefix}${n}`, undefined, request)
    if (request.hold !== 'pid') {
      call.owner = n
      call.words += ` owner=${n}`
    }
    return call
  }

  // about returns a call about a lease.
  about(verb, lease, options = '') {
    return new Call(verb, `lease=${lease.id}${options}`, lease)
  }

  question(verb, words = '') {
    return new Call(verb, words)
  }

  // ask begins a call, and waits for its end. signal ends the wait. After limit, the call goes on without
  // its caller, and without an error. Both may be undefined.
  ask(call, signal, limit) {
    return new Promise((resolve, reject) => {
      let timer
      const end = (error) => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', abort)
        if (error) reject(error)
        else resolve(call)
      }
      const leave = (error) => {
        call.notify = () => {}
        this.abandon(call)
        end(error)
      }
      const abort = () => leave(signal.reason)
      call.notify = () => end(call.error)
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      signal?.addEventListener('abort', abort)
      this.begin(call)
      if (limit !== undefined) timer = setTimeout(leave, Math.min(limit, longest))
      const wait = limit !== undefined ? undefined : call.request ? call.request.wait : 0
      if (call.state !== done && wait !== undefined && wait + this.patience <= longest) {
        timer = setTimeout(() => leave(this.hangs(call)), wait + this.patience)
      }
    })
  }

  // hangs returns the error of a caller that gave up, because the daemon hangs.
  hangs(call) {
    if (isDoneOnce(call) && call.sentOn) return new Unknown(call.what, `redlockd did not answer, and its result is unknown: see who('…') before you repeat it`)
    if (!this.link && this.fails > call.fails) return again(this.why, call.what)
    return new Unavailable(call.what, `redlockd at ${this.path} does not answer: it hangs, or its nodes do (redlock status)`)
  }

  begin(call) {
    call.started = performance.now()
    const wait = call.request ? call.request.wait : 0
    call.until = wait === undefined ? Infinity : call.started + wait
    call.fails = this.fails
    if (this.closed) {
      this.fail(call, new Closed(call.what, 'this client is closed'))
    } else if (this.out.length + (this.socket?.writableLength ?? 0) > maxUnwritten && call.verb !== 'UNLOCK' && call.verb !== 'RESUME') {
      this.fail(call, new Unavailable(call.what, 'redlockd hangs: it does not read its input'))
    } else if (this.busy[call.room] >= rooms[call.room]) {
      this.queues[call.room].push(call)
    } else {
      this.start(call)
    }
    this.hold()
  }

  // background begins a call that nobody waits for.
  background(call) {
    this.begin(call)
    if (call.state === waiting) call.state = abandoned
  }

  start(call) {
    this.busy[call.room]++
    call.state = waiting
    this.flight.add(call)
    if (this.link) {
      if (!this.awaitsResume(call)) this.send(call)
      return
    }
    this.planFailure(call)
    this.dialAt = Math.min(this.dialAt, performance.now() + minPause)
    this.planDial()
  }

  // awaitsResume tells whether the daemon may not know the call's lease yet.
  awaitsResume(call) {
    return call.lease !== undefined && call.lease._detached && ownedByLease.has(call.verb)
  }

  send(call) {
    const tag = String(++this.lastTag)
    call.resent ||= call.sentOn !== 0
    call.tags.push(tag)
    call.sentOn = this.link
    call.lines = [] // the whole answer will come again
    this.tags.set(tag, call)
    let wait = ''
    if (call.request && call.state === abandoned) {
      wait = ' wait=0' // it only finds out what to release
    } else if (call.request && call.request.wait !== undefined) {
      wait = ` wait=${Math.max(0, Math.round(call.started + call.request.wait - performance.now()))}`
    }
    this.write(`@${tag} ${call.verb} ${call.words}${wait}\n`)
  }

  // write sends lines together with others of the same turn of the event loop.
  write(lines) {
    if (this.out === '') void turn.then(() => this.flush())
    this.out += lines
  }

  flush() {
    if (this.socket && this.out) this.socket.write(this.out)
    this.out = ''
  }

  // shouldSend tells whether a new connection has to send the call.
  shouldSend(call) {
    if (isDoneOnce(call) && call.sentOn) return false
    if (call.state === abandoned) return call.verb === 'UNLOCK' || (call.request?.hold === 'pid' && call.sentOn !== 0)
    return call.verb !== 'RESUME'
  }

  // end ends the flight of a call.
  end(call) {
    const isAbandoned = call.state === abandoned
    call.state = done
    if (this.flight.delete(call)) {
      this.busy[call.room]--
      const next = this.queues[call.room].shift()
      if (next) this.start(next)
    }
    if (!isAbandoned) call.notify()
    this.hold()
    this.settled()
  }

  fail(call, error) {
    call.error = error
    this.forgetTags(call)
    if (call.verb === 'UNLOCK' && call.lease && !this.closed) this.unlockLater(call.lease)
    else if (call.verb === 'CHECK' && call.lease) call.lease._checking = false
    this.end(call)
  }

  forgetTags(call, answered) {
    for (const tag of call.tags) {
      if (tag === answered) this.tags.delete(tag)
      else this.tags.set(tag, call.request ? strayLock : stray)
    }
    call.tags = []
  }

  // abandon ends a call whose caller has left. What it is granted is released.
  abandon(call) {
    if (call.state === done) {
      if (call.request && call.reply && call.lease) this.unlockInBackground(call.lease)
    } else if (call.state === queued) {
      const queue = this.queues[call.room]
      queue.splice(queue.indexOf(call), 1)
      call.state = done
    } else if (call.state === waiting) {
      call.state = abandoned
      if (call.request) this.cancel(call.tags)
      if (call.tags.length === 0 && !this.shouldSend(call)) this.end(call)
    }
  }

  cancel(tags) {
    for (const tag of tags) this.write(`CANCEL ${tag}\n`)
  }

  // --- the connection

  // hold lets the connection keep the process running while a call waits or a lease is held.
  hold() {
    const used = this.flight.size > 0 || this.leases.size > 0
    if (used) this.socket?.ref()
    else this.socket?.unref()
    if (used) this.dialTimer?.ref()
    else this.dialTimer?.unref()
  }

  // wantsConnection tells whether a lease must be resumed, or a call waits.
  wantsConnection() {
    if (this.socket || this.closed) return false
    for (const call of this.flight) if (this.shouldSend(call)) return true
    for (const lease of this.leases.values()) if (lease._detached || lease._unwatched) return true
    return false
  }

  planDial() {
    clearTimeout(this.dialTimer)
    if (!this.wantsConnection()) return
    this.dialTimer = setTimeout(() => this.wantsConnection() && this.dial(), Math.max(0, this.dialAt - performance.now()))
  }

  dial() {
    const socket = net.connect({ path: this.path })
    this.socket = socket
    this.greeting = true
    this.refused = undefined
    this.input = ''
    this.lines = []
    this.out = ''
    this.tags.clear()
    let isConnected = false
    let failure
    this.decoder = new StringDecoder('utf8')
    socket.on('connect', () => {
      isConnected = true
      this.links++
      this.greetedAt = clock()
      socket.write('@0 HELLO 1\n')
    })
    socket.on('data', (bytes) => this.socket === socket && this.data(this.decoder.write(bytes)))
    socket.on('error', (error) => (failure = error))
    socket.on('close', () => {
      if (this.socket !== socket) return // it was hung up
      this.hangUp()
      if (!isConnected) {
        const [why, final] = wire.dialError(this.path, failure ?? new Error('closed'))
        this.greeting = false
        this.attemptFailed(why, final && this.links === 0)
      } else {
        this.ended(new Unavailable('', `redlockd closed the connection (${failure?.code ?? 'stopped or killed?'})`))
      }
    })
    this.greetingTimer = this.after(greetingTimeout, () => {
      this.hangUp()
      this.ended(new Unavailable('', `redlockd at ${this.path} does not answer: it hangs`))
    })
    this.hold()
  }

  // hangUp closes the connection. Its events are ignored from then on.
  hangUp() {
    this.cancelTimer(this.greetingTimer)
    this.cancelTimer(this.bye)
    this.socket?.destroy()
    this.socket = undefined
    this.out = this.input = ''
    this.lines = []
  }

  greeted({ tag, kind, code, fields, text }) {
    if (kind === 'BACK') {
      this.hangUp() // the answer may be lost, or may come twice
      this.greeting = false
      this.dialAt = 0
      this.planDial()
    } else if (kind === 'ERR') {
      this.refused = wire.refusal('', code, fields, text)
      if (tag) {
        this.hangUp()
        this.ended(this.refused)
      }
    } else if (kind === 'OK' && tag === '0') {
      this.noteClock(number(fields, 'clock'))
      this.use()
    }
  }

  // noteClock compares the clocks: they differ if the two processes are in different time namespaces.
  // Unless one clock can have made the daemon's reading after HELLO was sent, the earliest deadlines count.
  noteClock(daemons) {
    const ahead = daemons + 1 - this.greetedAt // daemons is in whole milliseconds
    const isSame = -clockTolerance <= ahead && daemons <= clock() + clockLag + clockTolerance
    this.ahead = isSame || !daemons ? 0 : ahead
  }

  // use makes a new connection the current one, and sends on it what is in flight.
  use() {
    this.cancelTimer(this.greetingTimer)
    this.greeting = false
    this.bye = undefined
    this.link = this.links
    this.connectedAt = performance.now()
    if (this.links > 1) this.emit('reconnect')
    for (const lease of [...this.leases.values()]) if (lease._detached || lease._unwatched) this.resume(lease)
    for (const call of [...this.flight]) {
      if (call.sentOn !== this.link && this.shouldSend(call) && !this.awaitsResume(call)) {
        this.send(call)
        if (call.state === abandoned && call.request) this.cancel(call.tags)
      }
    }
  }

  // attemptFailed is called when there is no connection. final: another attempt would not help.
  attemptFailed(error, final) {
    this.why = error
    this.fails++
    this.tries++
    this.dialAt = performance.now() + pause(this.tries - 1)
    if (final) {
      for (const call of [...this.flight]) if (call.state === waiting) this.fail(call, again(error, call.what))
    }
    this.failExpired()
    this.planDial()
  }

  // ended is called when the connection has ended. Leases that the daemon keeps until they are resumed
  // go on. here: this side has ended it, so that the daemon releases them.
  ended(error, here = false) {
    if (this.refused) error = new Unavailable('', `redlockd closed the connection: ${this.refused.text}`)
    else if (this.bye) error = new Shutdown('', 'redlockd is stopping, and no other one has started')
    if (this.greeting) {
      this.greeting = false
      this.attemptFailed(this.refused ?? error, this.refused !== undefined && this.refused.code !== 'SHUTDOWN')
      return
    }
    if (!this.link || this.closed) return
    this.emit('disconnect', error)
    const now = performance.now()
    this.link = 0
    this.bye = undefined
    this.tags.clear()
    this.why = error
    this.lostAt = now
    this.tries = now - this.connectedAt < maxPause ? this.tries + 1 : 0
    this.dialAt = now + (this.tries > 1 ? pause(this.tries) : 0)
    for (const lease of [...this.leases.values()]) {
      if (lease.cause) continue
      if (here && lease._hold === 'conn') this.finish(lease, new Lost(leaseName(lease), error.text))
      lease._detached = !lease.cause && lease._hold === 'conn'
      lease._unwatched = !lease.cause && lease._hold === 'pid'
    }
    this.queues.RESUME = []
    for (const call of [...this.flight]) {
      call.tags = []
      call.fails = this.fails
      if (call.verb === 'RESUME' || (call.state === abandoned && !this.shouldSend(call))) {
        if (call.verb === 'CHECK') call.lease._checking = false
        this.end(call)
      } else if (isDoneOnce(call) && call.sentOn) {
        this.fail(call, new Unknown(call.what, `the connection ended, and its result is unknown: see who('…') before you repeat it (${error.text})`))
      } else if (here && call.state === waiting) {
        this.fail(call, new Unavailable(call.what, error.text))
      } else {
        this.planFailure(call)
      }
    }
    this.planDial()
  }

  // planFailure lets a call fail when it has waited long enough for a connection.
  planFailure(call) {
    if (call.state === abandoned && call.lease?._hold === 'pid') call.until = Infinity // the lock would stay with the process
    if (call.until === Infinity) return
    if (this.lostAt !== undefined) call.until = Math.max(call.until, this.lostAt + this.patience)
    this.after(call.until - performance.now() + 1, () => this.failExpired())
  }

  // failExpired fails the calls that have waited long enough for a connection, and for one attempt.
  failExpired() {
    if (this.link) return
    const now = performance.now()
    for (const call of [...this.flight]) {
      if (call.until <= now && this.fails > call.fails) this.fail(call, again(this.why, call.what))
    }
  }

  data(received) {
    this.lines.push(...(this.input + received).split('\n'))
    this.input = this.lines.pop()
    try {
      while (this.lines.length > 0) { // a listener of a loss may call check, which reads more
        const line = this.lines.shift()
        if (line) this.line(wire.parse(line))
      }
      if (this.input.length > wire.maxLine) throw new ProtocolError('a line does not end')
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      const why = new Unavailable('', `the peer at ${this.path} does not speak the protocol of redlockd (${error.message}): is it redlockd's socket?`)
      this.hangUp()
      if (this.greeting) this.refused = why
      this.ended(why, true)
    }
  }

  line(parsed) {
    const { tag, kind, fields, text } = parsed
    if (this.greeting) {
      this.greeted(parsed)
    } else if (kind === 'LOST') {
      const lease = this.leases.get(fields.lease)
      if (lease) this.lostByDaemon(lease, fields, text)
    } else if (kind === 'BYE') {
      this.stopping()
    } else if (kind === 'BACK') {
      this.emit('restart')
      for (const call of [...this.flight]) if (call.tags.length > 0 && !isDoneOnce(call)) this.send(call) // answers may be lost, or may still come
    } else if (tag) {
      this.answer(parsed)
    } // else the answer to CANCEL, which says nothing, or an event of a later version
  }

  answer(parsed) {
    const { tag, kind, code, fields, text } = parsed
    const call = this.tags.get(tag)
    if (call === undefined) throw new ProtocolError(`an answer without a request: tag ${tag.slice(0, 20)}`)
    if (kind === '-') {
      if (call instanceof Call) call.lines.push({ ...fields, text })
      return
    }
    if (!(call instanceof Call)) {
      this.tags.delete(tag)
      if (call === strayLock && kind === 'OK' && fields.lease && !this.leases.has(fields.lease)) {
        this.background(new Call('UNLOCK', `lease=${fields.lease}`))
      }
      return
    }
    if (kind === 'ERR' && this.sendsAgain(call, parsed)) return
    const others = call.tags.filter((other) => other !== tag)
    this.forgetTags(call, tag)
    if (kind === 'OK') {
      call.reply = fields
      call.text = text
    } else {
      call.error = wire.refusal(call.what, code, fields, text)
      if (call.request) this.cancel(others) // so that none of them goes on waiting
    }
    this.settle(call, fields, text)
    this.end(call)
  }

  // sendsAgain tells whether the caller does not get a refusal, because the request will be sent again.
  // SHUTDOWN with drain= is an answer: the daemon keeps the connection and extends its leases.
  sendsAgain(call, { tag, code, fields }) {
    const isShutdown = code === 'SHUTDOWN' && !('drain' in fields) && this.shouldSend(call) && call.shutdowns++ < maxShutdowns
    const isLimit = code === 'LIMIT' && call.resent && call.verb !== 'RESUME' && call.limits++ < maxLimits
    if (!isShutdown && !isLimit) return false
    call.tags = call.tags.filter((other) => other !== tag)
    this.tags.delete(tag)
    if (isShutdown) {
      this.stopping() // the next connection sends it
    } else {
      const { link } = this
      this.after(resendPause, () => this.link === link && call.state !== done && this.send(call))
    }
    return true
  }

  // stopping is called when the daemon says that it stops, and bounds the wait for its end.
  stopping() {
    this.bye ??= this.after(byeTimeout, () => {
      this.hangUp()
      this.ended(this.why)
    })
  }

  // --- leases

  settle(call, fields, text) {
    if (call.request) {
      if (call.reply) this.granted(call, call.reply)
    } else if (call.lease === undefined) {
      return
    } else if (call.verb === 'UNLOCK') {
      this.unlocked(call, call.lease)
    } else if (call.verb === 'RESUME') {
      this.resumeAnswered(call, call.lease, fields)
    } else {
      this.checked(call, call.lease, fields, text)
    }
  }

  granted(call, fields) {
    if (!fields.lease || !fields.deadline) throw new ProtocolError('a grant without its fields')
    const lease = (call.lease = this.newLease(this, call, fields))
    this.leases.set(lease.id, lease)
    const now = clock()
    this.extend(lease, fields, now)
    if (call.request.max && lease._hold !== 'ttl') lease._bound = now + call.request.max * 0.99 - 20 // the daemon counts from before it asked the nodes
    if (call.state === abandoned) {
      this.unlockInBackground(lease)
    } else if (endOf(lease) <= now) {
      call.error = this.expired(lease)
      this.unlockInBackground(lease)
    } else {
      this.arm(lease, now)
    }
  }

  // extend sets a later deadline. Answers can overtake each other, so an earlier one is older.
  extend(lease, fields, now) {
    const left = number(fields, 'ttl')
    const at = number(fields, 'deadline')
    if (at) lease._deadline = Math.max(lease._deadline, wire.hasBoottime ? Math.min(at - this.ahead, now + left + 1) : now + left)
    lease._longest = Math.max(lease._longest, left)
    lease._guard = lease._ownGuard || Math.min(number(fields, 'guard') || (lease._ttl || lease._longest) / 5, lease._longest / 5)
  }

  // arm sets the timer to half of the time that is left: it does not run while the host is suspended.
  arm(lease, now) {
    lease._lateUntil = 0
    lease._lateCheck = undefined
    const left = endOf(lease) - now
    this.tickAt(lease, now + (left / 2 >= minCheck ? left / 2 : left), now)
  }

  tickAt(lease, when, now) {
    this.cancelTimer(lease._timer)
    lease._tickDue = when
    lease._timer = this.after(when - now, () => this.tick(lease))
  }

  tick(lease) {
    const now = clock()
    if (lease.cause) {
      if (lease._unlockDue && lease._unlockAt > now) this.unlockAt(lease, lease._unlockAt) // a timer of Node may be early
      else if (lease._unlockDue) this.beginUnlock(lease)
      return
    }
    const left = endOf(lease) - now
    if (left <= 0) {
      this.timeUp(lease, now)
      return
    }
    if (left >= 2 * minCheck && lease._hold !== 'ttl' && this.link && !lease._checking && !lease._detached) {
      lease._checking = true
      this.background(this.about('CHECK', lease))
    }
    this.arm(lease, now)
  }

  // timeUp is called when the time of a lease is up, and it is not known to be extended. If the timer is
  // late, the daemon may have extended it all the time, and is asked first.
  timeUp(lease, now) {
    const lateBy = now - lease._tickDue
    if (!lease._lateCheck && lease._hold !== 'ttl' && this.link && lateBy >= lateTolerance) this.askLate(lease, now, lateBy)
    if (now >= lease._lateUntil) this.expire(lease)
  }

  askLate(lease, now, lateBy) {
    lease._lateBy = lateBy
    lease._lateUntil = now + lateCheck
    lease._lateCheck = this.about('CHECK', lease)
    this.background(lease._lateCheck)
    this.tickAt(lease, lease._lateUntil, now)
  }

  // confirm blocks, if the time of a lease is up, until the daemon has said whether it is still held.
  confirm(lease) {
    for (let now = clock(); !lease.cause && endOf(lease) <= now; now = clock()) {
      this.timeUp(lease, now)
      this.flush()
      if (!lease.cause && !this.readNow()) this.expire(lease)
    }
  }

  // readNow reads what the socket has, or waits for a millisecond, without the event loop. It returns
  // false if there is no connection.
  readNow() {
    if (this.lines.length > 0) this.data('') // this is called by a listener
    let bytes
    try {
      bytes = room.subarray(0, fs.readSync(this.socket?._handle?.fd ?? -1, room))
    } catch (error) {
      if (error.code !== 'EAGAIN') return false
      Atomics.wait(never, 0, 0, 1)
      return true
    }
    this.data(this.decoder.write(bytes))
    return bytes.length > 0 // otherwise the event loop will find the end of the connection
  }

  // expired returns the cause of a lease that ended without a report of the daemon.
  expired(lease) {
    const ms = Math.round(lease._guard)
    let text = `lost: not confirmed ${ms} ms before its deadline: redlockd hangs, or could not extend it`
    if (lease._hold === 'ttl') text = `lost: its ttl ends in less than the guard of ${ms} ms, and extend() was not called`
    else if (lease._bound && lease._deadline >= lease._bound) text = `lost: its maximum holding time ends in less than the guard of ${ms} ms`
    else if (!this.link) text = `lost: not confirmed ${ms} ms before its deadline: there is no connection: ${this.why.text}`
    else if (lease._lateUntil) {
      text = `lost: this process was stopped, or did not return to its event loop, for ${Math.round(lease._lateBy)} ms, and redlockd did not answer within ${lateCheck} ms after that`
    }
    return new Lost(leaseName(lease), text)
  }

  // expire ends a lease that the daemon has not reported as lost. The daemon may still extend it. It is
  // unlocked at the deadline, and not before, because its holder may still be stopping.
  expire(lease) {
    if (!lease.cause) this.finish(lease, this.expired(lease), lease._maybeKept || !lease._detached ? toUnlock : toForget)
  }

  // finish ends a lease, and says what is left to do: toForget, toUnlock at its deadline, or
  // unlocksNow if the caller sends UNLOCK. Only the first call counts. The listeners of the loss are
  // called last, because they may call release.
  finish(lease, cause, next = toForget) {
    if (next === toForget && this.leases.get(lease.id) === lease) this.leases.delete(lease.id)
    if (next === toForget || !lease.cause) {
      this.cancelTimer(lease._timer)
      lease._unlockDue = false
    }
    if (next === toUnlock && !lease._unlocking) this.unlockAtDeadline(lease)
    if (lease.cause) {
      this.hold()
      return
    }
    lease.cause = cause
    const wasDetached = lease._detached
    lease._detached = lease._unwatched = false
    if (wasDetached) {
      for (const call of [...this.flight]) {
        if (call.lease === lease && ownedByLease.has(call.verb) && call.tags.length === 0) this.fail(call, cause)
      }
    }
    if (!(cause instanceof Released)) {
      lease._lost()
      this.emit('lost', lease, cause)
    }
    this.hold()
  }

  lostByDaemon(lease, fields, text) {
    const keepsOthers = fields.reason === 'forced' && lease.names.length > 1 // until the holder has stopped
    this.finish(lease, new Lost(leaseName(lease), text || `lost: reason=${fields.reason}`, fields), keepsOthers ? toUnlock : toForget)
  }

  unlockAtDeadline(lease) {
    this.unlockAt(lease, lease._deadline)
  }

  unlockAt(lease, when) {
    lease._unlockDue = true
    lease._unlockAt = when
    this.cancelTimer(lease._timer)
    lease._timer = this.after(when - clock(), () => this.tick(lease))
  }

  // unlockLater unlocks again after a failure, unless the lease expires by itself.
  unlockLater(lease) {
    lease._unlocking = false
    if (lease._hold === 'pid' || this.link) this.unlockAt(lease, clock() + retryUnlock)
    else this.finish(lease, lease.cause)
  }

  // release ends a lease, and returns the UNLOCK to ask. It throws if there is nothing to unlock.
  release(lease) {
    if (lease.cause instanceof Released) throw new NotHeld(`unlock "${lease.name}"`, 'not held: it is already released')
    if (lease.cause) {
      if (lease._unlockDue) this.beginUnlock(lease) // the holder has stopped, so do not wait for the deadline
      lease._unlocking = true
      throw lease.cause
    }
    lease._unlocking = true
    this.finish(lease, new Released(leaseName(lease), 'released'), unlocksNow)
    return this.about('UNLOCK', lease)
  }

  beginUnlock(lease) {
    lease._unlockDue = false
    lease._unlocking = true
    this.background(this.about('UNLOCK', lease))
  }

  // unlockInBackground unlocks a lease that is no longer used.
  unlockInBackground(lease) {
    this.finish(lease, new Released(leaseName(lease), 'released'), unlocksNow)
    this.beginUnlock(lease)
  }

  unlocked(call, lease) {
    const { error } = call
    if (!error || (error.code === 'NOTHELD' && call.resent)) {
      call.error = undefined // an earlier UNLOCK released it
    } else if (error.code === 'NOTHELD') {
      call.error = new Lost(call.what, `lost: redlockd no longer knows it (${error.text})`, error.fields)
    } else if (error.code !== 'LOST') {
      this.unlockLater(lease)
      return
    }
    this.finish(lease, lease.cause)
  }

  // checked handles the answer to CHECK, EXTEND or BEAT.
  checked(call, lease, fields, text) {
    const { error } = call
    lease._checking = false
    if (lease.cause) {
      call.error = lease.cause
    } else if (!error) {
      if (call.verb === 'EXTEND' && call.words.includes(' ttl=')) lease._ttl = lease._longest = 0
      const now = clock()
      this.extend(lease, fields, now)
      const took = performance.now() - call.started
      if (endOf(lease) > now) this.arm(lease, now)
      else if (call === lease._lateCheck && took >= lateTolerance) this.askLate(lease, now, took) // it was read late
      else this.timeUp(lease, now)
      call.error = lease.cause
    } else if (error.code === 'LOST') {
      this.lostByDaemon(lease, fields, text)
      call.error = lease.cause
    } else if (error.code === 'NOTHELD') {
      this.finish(lease, new Lost(leaseName(lease), `lost: redlockd no longer knows it (${error.text})`, error.fields))
      call.error = lease.cause
    }
  }

  resume(lease) {
    this.background(new Call('RESUME', `${lease._words} lease=${lease.id}${lease._owner ? ` owner=${lease._owner}` : ''}`, lease))
  }

  resumeAnswered(call, lease, fields) {
    const { error } = call
    if (!error) {
      this.resumeGranted(lease, fields)
    } else if (lease._hold === 'pid' && !['LIMIT', 'NOTHELD', 'LOST'].includes(error.code)) {
      lease._unwatched = false // after NOQUORUM the daemon reports a loss
    } else if (['NOTHELD', 'LOST', 'VERB'].includes(error.code)) {
      this.finish(lease, new Lost(leaseName(lease), `lost: the connection ended, and a new one could not resume it (${error.text})`, error.fields))
    } else {
      lease._maybeKept = true
      if (lease.cause) {
        this.unlockEnded(lease)
        return
      }
      const { link } = this
      this.after(retryResume, () => this.link === link && (lease._detached || lease._unwatched) && this.resume(lease))
    }
  }

  resumeGranted(lease, fields) {
    if (lease.cause) {
      if (lease._hold === 'conn') this.unlockEnded(lease)
      return
    }
    if (lease._detached || lease._unwatched) {
      this.resumed++
      this.emit('resume', lease)
    }
    lease._detached = lease._unwatched = false
    const now = clock()
    this.extend(lease, fields, now)
    this.arm(lease, now)
    for (const call of [...this.flight]) {
      if (call.lease === lease && call.tags.length === 0 && this.shouldSend(call)) this.send(call)
    }
  }

  // unlockEnded unlocks a lease that has ended here but that the daemon keeps: at the deadline that the
  // holder knew, because the holder may still be stopping, or at once if it has stopped.
  unlockEnded(lease) {
    if (lease._unlocking || lease.cause instanceof Released) this.beginUnlock(lease)
    else this.unlockAtDeadline(lease)
  }

  // --- the end

  // close ends all leases and calls, and then the connection, at which the daemon releases the locks. A
  // call that waits may be granted a lock that would stay, so it is cancelled before.
  async close() {
    for (const call of [...this.flight]) {
      if (call.state === waiting && call.request?.outlasts) {
        call.error = new Closed(call.what, 'this client is closed')
        call.notify()
        this.abandon(call)
      }
    }
    if (this.isReleasing()) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, byeTimeout)
        this.settled = () => {
          if (this.isReleasing()) return
          clearTimeout(timer)
          resolve()
        }
      })
    }
    if (this.closed) return
    this.closed = true
    for (const lease of [...this.leases.values()]) this.finish(lease, new Lost(leaseName(lease), 'lost: this client is closed'))
    for (const queue of Object.values(this.queues)) {
      for (const call of queue.splice(0)) this.fail(call, new Closed(call.what, 'this client is closed'))
    }
    for (const call of [...this.flight]) this.fail(call, new Closed(call.what, 'this client is closed'))
    for (const timer of this.timers) clearTimeout(timer)
    clearTimeout(this.dialTimer)
    this.hangUp()
  }

  // isReleasing tells whether a release is in flight whose lock would stay if the connection ended now.
  isReleasing() {
    if (!this.link) return false
    for (const call of this.flight) {
      if (call.state !== abandoned) continue
      if (call.request ? call.request.outlasts : call.verb === 'UNLOCK' && call.lease?._hold !== 'conn') return true
    }
    return false
  }
}

// isDoneOnce tells whether a call must not be done twice: a second FORCE would revoke the next holder's lock.
const isDoneOnce = (call) => call.verb === 'FORCE'

const leaseName = (lease) => `lease "${lease.name}"`

// endOf returns when a lease ends unless it is extended, on a clock that may be late.
const endOf = (lease) => lease._deadline - lease._guard - clockLag

const pause = (tries) => Math.min(minPause * 2 ** Math.min(tries, 10), maxPause) * (0.5 + Math.random() / 2)

module.exports = { Core, endOf, Released }
