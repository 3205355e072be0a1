// Tests with a real redlockd -dev, whose socket is $REDLOCK_SOCKET.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'

import { Already, Client, Closed, Denied, Held, Invalid, Lost, NotHeld, Unavailable } from 'redlockd'

const rounds = Number(process.env.REDLOCKD_ROUNDS ?? 300)
let c, name
let n = 0
beforeEach(() => {
  c = new Client()
  name = `node-${process.pid}-${++n}`
})
afterEach(() => c.close())

// isFree checks that another client gets the lock, after the release that may be in progress.
async function isFree() {
  const other = new Client()
  await (await other.lock(name, { wait: 5000 })).release()
  await other.close()
}

async function isHeld() {
  const other = new Client()
  await assert.rejects(other.lock(name, { wait: 0 }), Held)
  await other.close()
}

const waits = async () => {
  while (!(await c.list()).some((line) => line.lock === name && line.state === 'waiting')) await sleep(1)
}

test('using', async () => {
  let seen
  const result = await c.using(name, { wait: 5000 }, async (signal, lease) => {
    seen = lease
    assert.equal(signal, lease.signal)
    assert.equal(signal.aborted, false)
    assert.ok(lease.fence > 0 && lease.remaining() > 1000 && !lease.lost)
    lease.check()
    await assert.rejects(c.lock(name, { wait: 0 }), (error) => {
      assert.ok(error instanceof Held)
      assert.match(error.message, new RegExp(`^lock "${name}": .*held by`))
      assert.equal(error.fields.pid, String(process.pid))
      return true
    })
    return 42
  })
  assert.equal(result, 42)
  await isFree()
  assert.equal(seen.remaining(), 0)
  assert.throws(() => seen.check(), NotHeld)
  await assert.rejects(seen.release(), NotHeld)
  assert.equal(seen.lost, false)
})

test('using as in node-redlock', async () => {
  await c.using([name, `${name}-b`], 3000, async (signal, lease) => {
    assert.ok(lease.remaining() <= 3000)
    assert.deepEqual(lease.names, [name, `${name}-b`])
    assert.equal(signal.error, undefined)
  })
  await c.using([name], async (signal, lease) => lease.check())
  await c.using([name], 3000, { wait: 0 }, async (signal, lease) => lease.release())
  await assert.rejects(c.using([name], 3000, { retryCount: 3 }, async () => {}), /retryCount is not known: use wait/)
  await assert.rejects(
    c.using([name], 3000, { max: 300 }, async (signal) => {
      await once(signal, 'abort')
      assert.ok(signal.error instanceof Lost)
      throw signal.error
    }),
    Lost,
  )
})

test('release in the listener of a loss releases the other names at once', async () => {
  const lease = await c.lock([name, `${name}-b,c`], { ttl: 20_000 })
  const released = once(lease.signal, 'abort').then(() => assert.rejects(lease.release(), Lost)) // runs later
  const inside = new Promise((resolve) => lease.signal.addEventListener('abort', () => resolve(lease.release().catch((error) => error))))
  assert.deepEqual(await c.force(name), { holders: 1, also: [`${name}-b,c`] })
  assert.deepEqual(await c.force('free'), { holders: 0, also: [] })
  assert.ok((await inside) instanceof Lost)
  await released
  const other = await c.lock(`${name}-b,c`, { wait: 10_000 })
  await other.release()
  assert.match(inspect(c), /0 leases, 0 calls/)
})

test('timers that a test replaces are not used', { skip: !('timers' in mock) && 'this Node has no mock.timers' }, async (t) => {
  const apis = ['setTimeout', 'setInterval', 'setImmediate']
  t.mock.timers.enable(process.version.startsWith('v18.') ? apis : { apis })
  const fresh = new Client()
  const lease = await fresh.lock(name, { max: 300 })
  await once(lease.signal, 'abort')
  await fresh.close()
})

test('what is printed of a lease has no secret', async () => {
  const lease = await c.lock(name)
  for (const text of [inspect(lease), inspect({ lease }, { showHidden: true }), JSON.stringify({ lease }), `${lease}`]) {
    assert.ok(!text.includes(lease.id), text)
  }
  assert.match(inspect(lease), new RegExp(`Lease "${name}": held, fence ${lease.fence}, \\d+ ms`))
  await lease.release()
  assert.match(JSON.stringify(lease), /"state":"released","remaining":0/)
})

test('an error names the line of the program', async () => {
  const lease = await c.lock(name, { max: 300 })
  async function myFunction() {
    await c.lock(name, { wait: 0 })
  }
  await assert.rejects(myFunction(), (error) => error instanceof Held && /async myFunction .*redlockd\.test\.js/.test(error.stack))
  await once(lease.signal, 'abort')
  const myCheck = () => lease.check()
  assert.throws(myCheck, (error) => error instanceof Lost && /myCheck .*redlockd\.test\.js/.test(error.stack))
})

test('require', () => {
  const required = createRequire(import.meta.url)('redlockd')
  assert.equal(required.Client, Client)
})

test('await using', async () => {
  const lease = await c.lock(name, { wait: 0 })
  await lease[Symbol.asyncDispose]()
  await lease[Symbol.asyncDispose]()
  await isFree()
})

test('loss', async () => {
  await assert.rejects(
    c.using(name, { max: 300 }, async (signal, lease) => {
      await once(signal, 'abort')
      assert.ok(lease.lost)
      assert.throws(() => lease.check(), Lost)
    }),
    /holding time/,
  )
  await assert.rejects(
    c.using(name, {}, async () => {
      throw new RangeError('of the routine')
    }),
    RangeError,
  )
  await isFree()
})

const block = (ms) => {
  for (const end = performance.now() + ms; performance.now() < end; );
}

test('a blocked event loop loses nothing that the daemon has kept', async () => {
  const lease = await c.lock(name, { ttl: 1500 })
  block(1600)
  assert.equal(lease.remaining(), 0)
  lease.check() // blocks until the daemon has answered
  assert.ok(lease.remaining() > 0)
  block(1600)
  while (!lease.lost && lease.remaining() === 0) await sleep(1) // the event loop asks
  assert.equal(lease.lost, false)
  await lease.release()
})

test('check after a blocked event loop finds a loss', async () => {
  const lease = await c.lock(name, { ttl: 1500, max: 1000 })
  let aborted = 0
  lease.signal.addEventListener('abort', () => aborted++)
  block(1600)
  assert.throws(() => lease.check(), Lost)
  assert.deepEqual([aborted, lease.lost, lease.remaining()], [1, true, 0])
})

test('a listener of a loss may check another lease, late', async () => {
  const lease = await c.lock(name, { ttl: 1500, max: 1000 })
  const other = await c.lock(`${name}-b`, { ttl: 1500 })
  const checked = new Promise((resolve) =>
    lease.signal.addEventListener('abort', () => {
      block(1600)
      other.check()
      resolve()
    }),
  )
  const lists = Promise.all(Array.from({ length: 20 }, () => c.list()))
  block(1600)
  await checked
  for (const list of await lists) assert.ok(list.some((line) => line.lock === `${name}-b`))
  await other.release()
})

test('options', async () => {
  const lease = await c.lock(name, { note: 'a b', guard: 500, max: 60_000, linger: 0 })
  assert.ok((await c.list()).some((line) => line.note === 'a b'))
  await lease.release()
  const readers = await Promise.all([c.lock(name, { mode: 'shared' }), c.lock(name, { mode: 'shared' })])
  await Promise.all(readers.map((reader) => reader.release()))
  const slots = await Promise.all([c.lock(name, { slots: 2 }), c.lock(name, { slots: 2 })])
  assert.deepEqual(slots.map((lease) => lease.slot).sort(), [1, 2])
  await Promise.all(slots.map((lease) => lease.release()))
  const own = await c.lock(name, { hold: 'pid' })
  await assert.rejects(c.lock(name, { hold: 'pid' }), Already)
  await own.release()
  const alone = await c.lock(name, { hold: 'ttl', ttl: 5000 })
  await alone.extend(9000)
  assert.ok(alone.remaining() > 6000)
  await alone.release()
  const beats = await c.lock(name, { beat: 30_000 })
  await beats.beat()
  await beats.downgrade()
  await (await c.lock(name, { mode: 'shared', wait: 0 })).release()
  await beats.release()
})

test('questions', async () => {
  const lease = await c.lock(name)
  const [holder] = await c.who(name)
  assert.deepEqual([holder.lock, holder.pid], [name, String(process.pid)])
  const status = await c.status()
  assert.deepEqual([status.quorum, status.nodeStates.length], ['3', 5])
  assert.match(status.text, /locks work/)
  await lease.release()
})

test('an AbortSignal ends a wait', async () => {
  const lease = await c.lock(name)
  const stop = new AbortController()
  const waiting = c.lock(name, { signal: stop.signal })
  await waits()
  stop.abort(new RangeError('enough'))
  await assert.rejects(waiting, RangeError)
  await assert.rejects(c.lock(name, { signal: stop.signal }), RangeError)
  await assert.rejects(c.lock(name, { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' })
  await lease.release()
  await isFree()
})

test('close', async () => {
  const lease = await c.lock(name)
  const waiting = assert.rejects(c.lock(name), Closed)
  await waits()
  await c.close()
  await waiting
  assert.ok(lease.signal.aborted && lease.signal.reason instanceof Lost)
  await isFree()
  await assert.rejects(c.lock(name), Closed)
})

test('names and options that are wrong', async () => {
  for (const [kind, hint, names, options] of [
    [TypeError, /pass a string/, 5, {}],
    [TypeError, /pass a string/, undefined, {}],
    [Invalid, /not UTF-8/, '\ud800', {}],
    [Invalid, /1 to 200/, '', {}],
    [Invalid, /1 to 200/, 'é'.repeat(101), {}],
    [Invalid, /1 to 100/, [], {}],
    [Invalid, /3000/, Array.from({ length: 9 }, (_, i) => '%'.repeat(199) + i), {}],
    [TypeError, /wait: 5000/, 'job', { wait: '5s' }],
    [Invalid, /undefined waits without a bound/, 'job', { wait: -1 }],
    [Invalid, /milliseconds/, 'job', { wait: NaN }],
    [Invalid, /daemon's default/, 'job', { ttl: Infinity }],
    [Invalid, /'exclusive', 'shared'/, 'job', { mode: 'read' }],
    [Invalid, /'conn', 'ttl', 'pid'/, 'job', { hold: 'forever' }],
    [Invalid, /hold: 'pid'/, 'job', { pid: 5 }],
    [Invalid, /whole number/, 'job', { slots: 1.5 }],
    [Invalid, /at most 200/, 'job', { note: 'x'.repeat(201) }],
    [TypeError, /retain is not known/, 'job', { retain: 1 }],
    [TypeError, /pass an AbortSignal/, 'job', { signal: new AbortController() }],
    [TypeError, /pass an object/, 'job', 5000],
    [Invalid, /NAME/, 'a\nb', {}],
    [Invalid, /ttl/, 'job', { ttl: 10 }],
  ]) {
    await assert.rejects(c.lock(names, options), (error) => {
      assert.ok(error instanceof kind, `${inspect(options)}: ${error}`)
      assert.match(error.message, hint)
      return true
    })
  }
  await assert.rejects(c.using('job', {}), /needs an async function/)
  assert.throws(() => new Client(5), TypeError)
  assert.throws(() => new Client('redis://localhost:6379'), /a URL/)
})

test('sockets that are wrong', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rl'))
  const text = path.join(folder, 'text')
  fs.writeFileSync(text, '')
  for (const [where, kind, hint] of [
    [text, Invalid, /not a socket: set the path or REDLOCK_SOCKET/],
    [folder, Invalid, /not a socket/],
    ['x'.repeat(200), Invalid, /at most 107/],
    [path.join(folder, 'none'), Unavailable, /is redlockd running/],
  ]) {
    const wrong = new Client(where)
    await assert.rejects(wrong.lock('job', { wait: 50 }), (error) => {
      assert.ok(error instanceof kind, `${where}: ${error}`)
      assert.match(error.message, hint)
      return true
    })
    await wrong.close()
  }
  const later = path.join(folder, 'later')
  const waiting = new Client(later)
  const locked = waiting.lock(name, { wait: 30_000 })
  await sleep(200)
  fs.symlinkSync(process.env.REDLOCK_SOCKET, later)
  await (await locked).release()
  await waiting.close()
  fs.rmSync(folder, { recursive: true })
})

test('a socket that this user may not open', { skip: process.geteuid() !== 0 && 'only root can become another user' }, async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rl'))
  fs.chmodSync(folder, 0o755)
  const server = net.createServer().listen(path.join(folder, 's'))
  await once(server, 'listening')
  fs.chmodSync(server.address(), 0o600)
  const denied = new Client(server.address())
  process.seteuid(65534)
  try {
    await assert.rejects(denied.lock('job'), (error) => error instanceof Denied && /group of the socket/.test(error.message))
  } finally {
    process.seteuid(0)
    await denied.close()
    server.close()
    fs.rmSync(folder, { recursive: true })
  }
})

test('an old daemon, and a server of another protocol', async () => {
  for (const [answer, hint] of [['@% ERR VERB : no such request', /VERB: no such request/], ['HTTP/1.1 400 Bad Request', /does not speak the protocol/]]) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rl'))
    const server = net.createServer((connection) => {
      connection.once('data', (line) => connection.write(answer.replace('%', String(line).split(' ')[0].slice(1)) + '\n'))
    }).listen(path.join(folder, 's'))
    await once(server, 'listening')
    const old = new Client(server.address())
    await assert.rejects(old.lock('job', { wait: 5000 }), hint)
    await old.close()
    server.close()
    fs.rmSync(folder, { recursive: true })
  }
})

test('tryLock, locked, owned', async () => {
  const other = new Client()
  assert.equal(await c.locked(name), false)
  const lease = await c.tryLock(name)
  assert.deepEqual([await other.locked(name), lease.owned(), await other.tryLock(name)], [true, true, null])
  await assert.rejects(c.tryLock(name, { wait: 5 }), /does not wait/)
  await lease.release()
  assert.deepEqual([await c.locked(name), lease.owned()], [false, false])
  await other.close()
})

test('watch', async () => {
  const seen = []
  const lease = await c.lock(name)
  const stop = new AbortController()
  await assert.rejects(async () => {
    for await (const holders of c.watch(name, { every: 1, signal: stop.signal })) {
      seen.push(holders.length)
      if (holders.length > 0) await lease.release()
      else stop.abort()
    }
  }, { name: 'AbortError' })
  assert.deepEqual(seen, [1, 0])
})

test('a lock inside using of the same name', async () => {
  const warned = once(process, 'warning')
  await c.using(name, async (signal, lease) => {
    const again = await c.lock(name, { reentrant: true })
    assert.equal(again, lease)
    await c.using(name, { reentrant: true }, async (_, inner) => assert.equal(inner, lease))
    await again.release()
    assert.ok(lease.owned())
    await assert.rejects(c.lock([name, 'other'], { reentrant: true }), Already)
    await assert.rejects(c.lock(name, { mode: 'shared', reentrant: true }), Already)
    await assert.rejects(c.lock(name, { wait: 0 }), Held)
    await assert.rejects(c.lock(name, { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' })
  })
  assert.match((await warned)[0].message, new RegExp(`lock "${name}" may wait for itself.*reentrant`))
  await isFree()
})

test('events', async () => {
  const events = []
  for (const event of ['disconnect', 'reconnect', 'restart', 'resume', 'lost']) c.on(event, (...of) => events.push([event, ...of]))
  const lease = await c.lock(name, { max: 300 })
  await once(c, 'lost')
  assert.deepEqual(events, [['lost', lease, lease.cause]])
})

test('settings and options of others', async () => {
  for (const [options, hint] of [
    [{ timeout: 5 }, /use wait.*ttl/],
    [{ blocking: false }, /wait: 0/],
    [{ acquireTimeout: 5 }, /use wait/],
    [{ maxPending: 5 }, /tryLock/],
    [{ ttl: '10s' }, /ttl: 5000/],
  ]) {
    await assert.rejects(c.lock(name, options), hint)
  }
  assert.throws(() => new Client(undefined, { retryCount: 3 }), /retryCount is not known.*patience/)
})

test('a hundred promises on one connection', async () => {
  let inside = 0
  let most = 0
  await Promise.all(
    Array.from({ length: 100 }, () =>
      c.using(name, {}, async () => {
        most = Math.max(most, ++inside)
        await sleep(0)
        inside--
      }),
    ),
  )
  assert.deepEqual([most, inside, c.reconnects], [1, 0, 0])
})

test('no leak', async () => {
  await c.status()
  const files = fs.readdirSync('/proc/self/fd').length
  for (let i = 0; i < rounds; i++) await c.using(name, {}, async () => {})
  assert.match(inspect(c), /0 leases, 0 calls, 0 tags, 0 timers/)
  assert.equal(fs.readdirSync('/proc/self/fd').length, files)
})

test('an idle client lets the process end', async () => {
  const code = `import { Client } from 'redlockd'; const c = new Client(); await (await c.lock(${JSON.stringify(name)})).release()`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: 'inherit', cwd: import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname) })
  assert.deepEqual(await once(child, 'exit'), [0, null])
})
