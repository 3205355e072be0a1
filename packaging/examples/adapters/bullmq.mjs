// A processor for BullMQ (5 and 6): jobs with the same lock do not run at the same time, on any host.
//
//     const lockOf = (job) => `customer/${job.data.customer}`
//     new Worker('reports', exclusive(lockOf, async (job, token, signal) => { … }), { connection, concurrency: 10 })
//
// signal is aborted before another job can have the lock. If the lock is held, the job is delayed, which is no attempt.
import { DelayedError } from 'bullmq'
import { Client, Held } from 'redlockd'

export const client = new Client() // one connection for all workers of the process

export function exclusive(lockOf, processor, { delay = 5000, ...options } = {}) {
  return async (job, token, cancelled) => {
    let began = false
    try {
      return await client.using(lockOf(job), { wait: 0, ...options }, (lost) => {
        began = true
        return processor(job, token, cancelled ? AbortSignal.any([cancelled, lost]) : lost)
      })
    } catch (error) {
      if (began || !(error instanceof Held)) throw error
      await job.moveToDelayed(Date.now() + delay, token)
      throw new DelayedError()
    }
  }
}
