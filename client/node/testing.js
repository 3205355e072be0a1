// A redlockd inside this process, for tests of programs that take locks. It speaks the protocol, has no
// Redis nodes, and keeps its locks in memory. A test can have it refuse, lose, hang and restart.
'use strict'
const { randomBytes } = require('node:crypto')
const { once } = require('node:events')
const fs = require('node:fs')
const net = require('node:net')
const os = require('node:os')
const path = require('node:path')
const { clearTimeout, setTimeout } = require('node:timers')

const { clock, escape } = require('./wire.js')

const defaultTTL = 10_000
const me = () => `host=${escape(os.hostname())} pid=${process.pid} user=${escape(os.userInfo().username)}`
const join = (names) => names.map(escape).join(',')

class Daemon {
  #folder
  #server
  #conns = new Set()
  #leases = new Map() // by id
  #lost = new Map() // id to reason
  #waiting = [] // requests, in order
  #refusals = new Map() // name, or '' for all, to code
  #isHanging = false
  #fence = 0

  // start listens at a path of its own.
  async start() {
    this.#folder = fs.mkdtempSync(path.join(os.tmpdir(), 'redlockd-'))
    this.path = path.join(this.#folder, 's')
    await this.#listen()
    return this
  }

  // --- what a test calls

  // refuse answers each LOCK of a name, or of all names, with a code, until accept.
  refuse(code = 'HELD', name = '') {
    this.#refusals.set(name, code)
  }

  accept() {
    this.#refusals.clear()
  }

  // lose takes a lock from its holders, and tells them.
  lose(name, reason = 'quorum') {
    for (const lease of this.#holders(name)) this.#lose(lease, reason)
    this.#grant()
  }

  // hang stops answering, until wake. Connections stay open.
  hang() {
    this.#isHanging = true
    for (const conn of this.#conns) conn.pause()
  }

  wake() {
    this.#isHanging = false
    for (const conn of this.#conns) conn.resume()
  }

  // restart ends all connections, and listens again after pause milliseconds. Clients can resume their
  // leases for the ttl. keep: the connections continue, as with systemd. forget: the leases are gone.
  async restart({ pause = 0, keep = false, forget = false } = {}) {
    if (forget) for (const lease of [...this.#leases.values()]) this.#remove(lease)
    if (keep) {
      for (const conn of this.#conns) conn.write('BACK : redlockd was restarted\n')
      return
    }
    await this.#hangUp()
    if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause))
    await this.#listen()
  }

  // holders returns what holds a lock, and waiters how many clients wait for it.
  holders(name) {
    return this.#holders(name).map(({ names, mode, slot, note, fence }) => ({ names, mode, slot, note, fence }))
  }

  waiters(name) {
    return this.#waiting.filter((request) => request.names.includes(name)).length
  }

  async close() {
    await this.#hangUp()
    for (const lease of [...this.#leases.values()]) this.#remove(lease)
    fs.rmSync(this.#folder, { recursive: true, force: true })
  }

  async [Symbol.asyncDispose]() {
    await this.close()
  }

  // --- connections

  async #listen() {
    this.#server = net.createServer((conn) => this.#serve(conn))
    this.#server.listen(this.path).unref()
    await once(this.#server, 'listening')
  }

  #serve(conn) {
    this.#conns.add(conn)
    conn.unref()
    conn.setEncoding('utf8')
    let input = ''
    conn.on('data', (text) => {
      const lines = (input + text).split('\n')
      input = lines.pop()
      for (const line of lines) if (line) this.#request(conn, line.replace(/\r$/, ''))
    })
    conn.on('error', () => {}) // the client has ended
    conn.on('close', () => this.#closed(conn, false))
    if (this.#isHanging) conn.pause()
  }

  // #closed handles the end of a connection. restarts: this side has ended it, so its leases stay.
  #closed(conn, restarts) {
    if (!this.#conns.delete(conn)) return
    for (const request of this.#waiting.filter((request) => request.conn === conn)) this.#leave(request)
    for (const lease of [...this.#leases.values()]) {
      if (lease.conn !== conn || lease.hold !== 'conn') continue
      if (restarts) this.#expire(lease, lease.ttl, 'expired')
      else this.#remove(lease)
    }
    this.#grant()
  }

  async #hangUp() {
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const conn of [...this.#conns]) {
      this.#closed(conn, true)
      conn.destroy()
    }
    await closed
  }

  #request(conn, line) {
    const words = line.split(' ').filter((word) => word)
    const tag = words[0].startsWith('@') ? `${words.shift()} ` : ''
    const verb = words.shift()
    const options = {}
    for (const word of words.filter((word) => word.includes('='))) {
      const [key, value] = word.split('=')
      options[key] = decodeURIComponent(value)
    }
    const names = (words.find((word) => !word.includes('=')) ?? '').split(',').map(decodeURIComponent)
    const answer = (text) => conn.write(`${tag}${text}\n`)
    const verbs = {
      HELLO: () => answer(`OK version=0.9.0 ttl=${defaultTTL} max_ttl=60000 clock=${Math.floor(clock())}`),
      PING: () => answer('OK'),
      LOCK: () => this.#lock(conn, names, { wait: undefined, ...options }, answer, tag),
      TRY: () => this.#lock(conn, names, { ...options, wait: 0 }, answer, tag),
      CANCEL: () => this.#cancel(conn, names[0], answer),
      WHO: () => this.#lines(answer, this.#holders(names[0])),
      LIST: () => this.#lines(answer, [...this.#leases.values(), ...this.#waiting]),
      STATUS: () => answer('OK quorum=1 spare=0 : ready: locks work'),
      FORCE: () => this.#force(names[0], answer),
    }
    if (verbs[verb]) verbs[verb]()
    else if (['UNLOCK', 'CHECK', 'EXTEND', 'BEAT', 'RESUME'].includes(verb)) this.#ofLease(verb, conn, names, options, answer)
    else answer('ERR VERB : the daemon for tests does not have it')
  }

  #lines(answer, entries) {
    for (const { names, mode, slot, note, since, id } of entries) {
      answer(`- lock=${join(names)} ${me()} state=${id ? 'held' : 'waiting'} mode=${mode} since=${Math.floor(clock() - since)}${slot ? ` slot=${slot}` : ''}${note ? ` note=${escape(note)}` : ''}`)
    }
    answer(`OK n=${entries.length}`)
  }

  // --- locks

  #holders(name) {
    return [...this.#leases.values()].filter((lease) => lease.taken.includes(name))
  }

  #lock(conn, names, options, answer, tag) {
    const { mode = 'exclusive', hold = 'conn', note = '', id, wait } = options
    const request = { conn, tag, names, mode, hold, note, answer, request: id, since: clock(), ttl: Number(options.ttl ?? defaultTTL), slots: Number(options.slots ?? 0) }
    request.guard = Number(options.guard ?? Math.floor(Math.min(request.ttl, Number(options.max) || Infinity) / 5))
    request.max = Number(options.max ?? 0)
    request.beat = Number(options.beat ?? 0)
    request.owner = hold === 'pid' ? `pid ${options.pid ?? process.pid}` : undefined
    const before = [...this.#leases.values()].find((lease) => id && lease.request === id)
    if (before) {
      before.conn = conn
      answer(`${this.#fields(before)} again=yes`)
      return
    }
    for (const [name, code] of this.#refusals) {
      if (name === '' || names.includes(name)) {
        answer(`ERR ${code} ${code === 'HELD' ? me() : ''} : refused by the test`)
        return
      }
    }
    const mine = [...this.#leases.values(), ...this.#waiting].find((other) => other.owner && other.owner === request.owner && other.names.some((name) => names.includes(name)))
    if (mine) {
      answer('ERR ALREADY : this process already holds the lock or waits for it')
      return
    }
    this.#waiting.push(request)
    this.#grant()
    if (!this.#waiting.includes(request) || wait === undefined || wait === 'forever') return
    const refuse = () => {
      this.#leave(request)
      answer(`ERR HELD ${me()} : held by another lock of this test`)
      this.#grant()
    }
    if (Number(wait) > 0) request.timer = setTimeout(refuse, Number(wait))
    else refuse()
  }

  #leave(request) {
    clearTimeout(request.timer)
    this.#waiting = this.#waiting.filter((other) => other !== request)
  }

  #cancel(conn, tag, answer) {
    const request = this.#waiting.find((other) => other.conn === conn && other.tag === `@${tag} `)
    if (request) {
      this.#leave(request)
      request.answer('ERR CANCELLED : by CANCEL')
      this.#grant()
    }
    answer('OK')
  }

  // #grant grants what can be granted: first come, first served.
  #grant() {
    const earlier = new Set()
    for (const request of this.#waiting) {
      if (!request.names.some((name) => earlier.has(name)) && request.names.every((name) => this.#fits(request, name))) this.#hold(request)
      else for (const name of request.names) earlier.add(name)
    }
  }

  #fits({ mode, slots }, name) {
    const holders = this.#holders(name)
    if (slots > 0) return holders.length < slots && holders.every((lease) => lease.slots === slots)
    return holders.every((lease) => mode === 'shared' && lease.mode === 'shared')
  }

  #hold(request) {
    this.#leave(request)
    const used = this.#holders(request.names[0]).map((lease) => lease.slot)
    const slot = request.slots && Array.from({ length: request.slots }, (_, i) => i + 1).find((n) => !used.includes(n))
    const lease = { ...request, id: randomBytes(16).toString('base64url'), fence: ++this.#fence, slot, taken: request.names, since: clock(), timer: undefined }
    lease.end = clock() + (lease.hold === 'ttl' ? lease.ttl : lease.max || Infinity)
    this.#leases.set(lease.id, lease)
    if (lease.hold === 'ttl') this.#expire(lease, lease.ttl - lease.guard, 'expired')
    else if (lease.max) this.#expire(lease, lease.max - lease.guard, 'max')
    if (lease.beat) this.#awaitBeat(lease)
    lease.answer(this.#fields(lease))
  }

  #fields({ names, id, fence, slot, ttl, guard, end }) {
    const left = Math.max(0, Math.floor(Math.min(ttl, end - clock())))
    return `OK lock=${join(names)} lease=${id} fence=${fence} ttl=${left} deadline=${Math.floor(clock()) + left} guard=${guard}${slot ? ` slot=${slot}` : ''}`
  }

  #ofLease(verb, conn, names, options, answer) {
    const lease = this.#leases.get(options.lease) ?? (options.lease ? undefined : this.#holders(names[0])[0])
    const reason = lease?.reason ?? this.#lost.get(options.lease)
    if (lease && verb === 'UNLOCK') {
      this.#remove(lease)
      this.#grant()
    }
    if (reason) answer(`ERR LOST reason=${reason} : lost (${reason})`)
    else if (!lease) answer('ERR NOTHELD : not held')
    else if (verb === 'UNLOCK') answer(`OK lock=${join(lease.names)}`)
    else {
      if (verb === 'RESUME') {
        lease.conn = conn
        clearTimeout(lease.timer)
        if (lease.max) this.#expire(lease, lease.end - clock() - lease.guard, 'max')
      } else if (verb === 'BEAT') {
        this.#awaitBeat(lease)
      } else if (verb === 'EXTEND') {
        if (options.ttl) lease.ttl = Number(options.ttl)
        if (options.mode) lease.mode = options.mode
        if (lease.hold === 'ttl') {
          lease.end = clock() + lease.ttl
          this.#expire(lease, lease.ttl - lease.guard, 'expired')
        }
      }
      answer(this.#fields(lease))
      this.#grant()
    }
  }

  #expire(lease, ms, reason) {
    clearTimeout(lease.timer)
    lease.timer = setTimeout(() => this.#loseOne(lease, reason), ms).unref()
  }

  #awaitBeat(lease) {
    clearTimeout(lease.beatTimer)
    lease.beatTimer = setTimeout(() => this.#loseOne(lease, 'beat'), lease.beat).unref()
  }

  #loseOne(lease, reason) {
    this.#lose(lease, reason)
    this.#grant()
  }

  // #lose ends a lease, and tells its client. After FORCE of one of its names, the others stay taken
  // until the client has stopped.
  #lose(lease, reason, forced) {
    lease.taken = forced ? lease.names.filter((name) => name !== forced) : []
    lease.reason = reason
    if (lease.taken.length === 0) this.#remove(lease)
    else this.#expire(lease, lease.ttl, reason)
    if (this.#conns.has(lease.conn)) lease.conn.write(`LOST lock=${join(lease.names)} lease=${lease.id} reason=${reason} : lost (${reason})\n`)
  }

  #force(name, answer) {
    const holders = this.#holders(name)
    for (const lease of holders) this.#lose(lease, 'forced', name)
    this.#grant()
    const also = [...new Set(holders.flatMap((lease) => lease.taken))]
    answer(`OK lock=${escape(name)} n=${holders.length}${also.length > 0 ? ` also=${join(also)}` : ''}`)
  }

  #remove(lease) {
    clearTimeout(lease.timer)
    clearTimeout(lease.beatTimer)
    this.#leases.delete(lease.id)
    if (lease.reason) this.#lost.set(lease.id, lease.reason)
  }
}

const startDaemon = () => new Daemon().start()

// testDaemon starts a daemon for a test of node:test, and closes it at the test's end. Until then,
// new Client() uses it.
async function testDaemon(t) {
  const daemon = await startDaemon()
  const before = process.env.REDLOCK_SOCKET
  process.env.REDLOCK_SOCKET = daemon.path
  t.after(async () => {
    if (before === undefined) delete process.env.REDLOCK_SOCKET
    else process.env.REDLOCK_SOCKET = before
    await daemon.close()
  })
  return daemon
}

module.exports = { startDaemon, testDaemon }
