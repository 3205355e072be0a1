// Tests of the Node adapters, with stand-ins for the frameworks. The parts that the adapters use:
//
// BullMQ 6.7 (src/types/processor.ts, src/classes/job.ts, worker.ts): a processor (job, token, signal); Job.moveToDelayed(
// timestamp, token), which skips the attempt; a DelayedError after it, which is no failure.
// Agenda 6.2 (src/Job.ts): a processor (job); Job.schedule(date); run() saves the job after the processor.
import assert from 'node:assert'
import { mkdirSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { Client, Lost, NoQuorum } from 'redlockd'

mkdirSync('node_modules/bullmq', { recursive: true })
writeFileSync('node_modules/bullmq/index.mjs', 'export class DelayedError extends Error {}\n')
writeFileSync('node_modules/bullmq/package.json', '{"exports": "./index.mjs"}')
const { DelayedError } = await import('bullmq')
const bullmq = await import('./bullmq.mjs')
const agenda = await import('./agenda.mjs')
const wait = 60_000 // for nodes that a busy machine starves

// contested runs a job, and a second one while the first one lasts. It returns the second job.
async function contested(exclusive, name, makeJob) {
  const began = deferred()
  const finish = deferred()
  const first = exclusive(() => name, async (job, ...rest) => {
    began.resolve()
    await finish.promise
    assert.equal(rest.at(-1).aborted, false)
    return 'done'
  }, { wait })
  const done = first(makeJob(), 'token')
  await began.promise
  const second = makeJob()
  const skipped = exclusive(() => name, () => assert.fail('two jobs at the same time'), { wait: 1000, delay: 7000 })(second, 'token')
  await skipped.catch((error) => second.failed = error)
  finish.resolve()
  second.firstReturned = await done
  return second
}

// force repeats it while a busy machine starves the nodes.
async function force(admin, name) {
  for (let left = 50; ; left--) {
    try {
      return await admin.force(name)
    } catch (error) {
      if (left === 0 || !(error instanceof NoQuorum)) throw error
    }
  }
}

function deferred() {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

test('BullMQ delays a job whose lock is held', async () => {
  const job = await contested(bullmq.exclusive, 'bullmq', () => ({
    async moveToDelayed(timestamp, token) { Object.assign(this, { timestamp, token }) },
  }))
  assert.ok(job.failed instanceof DelayedError)
  assert.ok(job.timestamp > Date.now(), 'the delay is in the past')
  assert.equal(job.token, 'token')
  assert.equal(job.firstReturned, 'done')
})

test('Agenda schedules a job whose lock is held', async () => {
  const job = await contested(agenda.exclusive, 'agenda', () => ({ schedule(date) { this.date = date } }))
  assert.equal(job.failed, undefined)
  assert.ok(job.date > new Date(), 'the date is in the past')
})

for (const [name, { exclusive }] of Object.entries({ bullmq, agenda })) {
  test(`${name}: a lost lock aborts the job, and errors are the job's own`, async (t) => {
    const admin = new Client()
    t.after(() => admin.close())
    const lost = exclusive(() => `${name} lost`, async (job, ...rest) => {
      await force(admin, `${name} lost`)
      const signal = rest.at(-1)
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve))
      assert.ok(signal.reason instanceof Lost, `${signal.reason}`)
    }, { wait })
    await assert.rejects(lost({}), Lost)
    await assert.rejects(exclusive(() => name, () => Promise.reject(new RangeError('own')), { wait })({}), RangeError)
    if (name === 'bullmq') { // the worker cancels the job
      const cancelled = exclusive(() => name, async (job, token, signal) => signal.aborted, { wait })
      assert.equal(await cancelled({}, 'token', AbortSignal.abort()), true)
    }
  })
}

test('at the end', () => {
  bullmq.client.close()
  agenda.client.close()
})
