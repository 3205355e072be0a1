// Tests with the daemon for tests, which is tested by them, too.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'

import { Already, Client, Held, Lost, NoQuorum, Unavailable, Unknown } from 'redlockd'
import { testDaemon } from 'redlockd/testing'

// start returns a daemon and a client, which is closed at the end of the test, with nothing left.
async function start(t, settings) {
  const daemon = await testDaemon(t)
  const c = new Client(undefined, settings)
  t.after(async () => {
    await c.close()
    assert.match(inspect(c), /0 leases, 0 calls/)
  })
  return { daemon, c }
}

test('locks exclude each other, first come, first served', async (t) => {
  const { daemon, c } = await start(t)
  const first = await c.lock(['a', 'b=,%'], { note: 'why' })
  assert.deepEqual(daemon.holders('b=,%'), [{ names: ['a', 'b=,%'], mode: 'exclusive', slot: 0, note: 'why', fence: 1 }])
  await assert.rejects(c.lock('a', { wait: 5 }), Held)
  const order = []
  const locked = ['a', 'b=,%', 'a'].map((name, i) => c.using(name, async () => order.push(i)))
  const stop = new AbortController()
  const cancelled = assert.rejects(c.lock('a', { signal: stop.signal }), RangeError)
  while (daemon.waiters('a') < 3) await sleep(1)
  stop.abort(new RangeError())
  await cancelled
  assert.equal((await c.who('a'))[0].pid, String(process.pid))
  await first.release()
  await Promise.all(locked)
  assert.deepEqual(order.filter((i) => i !== 1), [0, 2])
  assert.deepEqual(daemon.holders('a'), [])
})

test('readers, slots, processes, ttl, beat', async (t) => {
  const { c } = await start(t)
  await using2(c.lock('a', { mode: 'shared' }), c.lock('a', { mode: 'shared' }), () => assert.rejects(c.lock('a', { wait: 0 }), Held))
  await using2(c.lock('a', { slots: 2 }), c.lock('a', { slots: 2 }), async (one, two) => {
    assert.deepEqual([one.slot, two.slot], [1, 2])
    await assert.rejects(c.lock('a', { slots: 2, wait: 0 }), Held)
  })
  const own = await c.lock('a', { hold: 'pid' })
  await assert.rejects(c.lock('a', { hold: 'pid' }), Already)
  await own.downgrade()
  await (await c.lock('a', { mode: 'shared', wait: 0 })).release()
  await own.release()
  const short = await c.lock('a', { hold: 'ttl', ttl: 200 })
  await short.extend(5000)
  assert.ok(short.remaining() > 1000)
  await short.release()
  const beats = await c.lock('a', { beat: 100 })
  await beats.beat()
  await once(beats.signal, 'abort')
  assert.equal(beats.cause.fields.reason, 'beat')
})

async function using2(one, two, f) {
  const leases = await Promise.all([one, two])
  await f(...leases)
  await Promise.all(leases.map((lease) => lease.release()))
}

test('refuse and lose', async (t) => {
  const { daemon, c } = await start(t)
  daemon.refuse('NOQUORUM', 'a')
  await assert.rejects(c.lock('a'), NoQuorum)
  await (await c.lock('b')).release()
  daemon.refuse()
  await assert.rejects(c.lock('b'), Held)
  daemon.accept()
  await assert.rejects(
    c.using('a', async (signal) => {
      daemon.lose('a', 'max')
      await once(signal, 'abort')
    }),
    (error) => error instanceof Lost && error.fields.reason === 'max',
  )
  const lease = await c.lock(['a', 'b'])
  assert.deepEqual(await c.force('a'), { holders: 1, also: ['b'] })
  assert.ok(lease.lost)
  await assert.rejects(c.lock('b', { wait: 0 }), Held)
  await assert.rejects(lease.release(), Lost)
  await (await c.lock('b')).release()
})

test('a lease survives a restart, and events tell of it', async (t) => {
  const { daemon, c } = await start(t)
  const events = []
  for (const event of ['disconnect', 'reconnect', 'restart', 'resume', 'lost']) c.on(event, () => events.push(event))
  const lease = await c.lock('a')
  const resumed = once(c, 'resume')
  await daemon.restart({ pause: 20 })
  assert.equal((await resumed)[0], lease)
  await assert.rejects(c.lock('a', { wait: 0 }), Held)
  const back = once(c, 'restart')
  await daemon.restart({ keep: true })
  await back
  assert.deepEqual(events, ['disconnect', 'reconnect', 'resume', 'restart'])
  const lost = once(c, 'lost')
  await daemon.restart({ forget: true })
  assert.equal((await lost)[0], lease)
  await assert.rejects(lease.release(), Lost)
})

test('force is never sent twice', async (t) => {
  const { daemon, c } = await start(t, { patience: 300 })
  await c.status()
  for (const options of [{}, { keep: true }]) {
    daemon.hang()
    const forced = assert.rejects(c.force('a'), Unknown)
    await sleep(20) // it is sent, and not answered
    await daemon.restart(options)
    await forced
    daemon.wake()
    await c.status()
  }
})

test('a release that a daemon which hangs does not answer', async (t) => {
  const { daemon, c } = await start(t, { patience: 100 })
  await assert.rejects(c.using('a', async () => daemon.hang()), Unavailable)
  daemon.wake()
  assert.equal(await c.using('a', { releaseWait: 50 }, async () => (daemon.hang(), 'the result')), 'the result')
  daemon.wake()
  const lease = await c.lock('a') // the release went on
  daemon.hang()
  await lease.release({ wait: 0 })
  daemon.wake()
  await c.using('a', async () => {})
})
