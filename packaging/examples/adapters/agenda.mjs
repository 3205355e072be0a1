// A processor for Agenda (4 to 6): jobs with the same lock do not run at the same time, on any host.
//
//     agenda.define('report', exclusive((job) => `customer/${job.attrs.data.customer}`, async (job, signal) => { … }))
//
// Agenda's own lock is for one job, and ends after lockLifetime, although the job may still run. signal is aborted
// before another job can have the lock. If the lock is held, the job runs again after delay (in milliseconds).
import { Client, Held } from 'redlockd'

export const client = new Client() // one connection for all jobs of the process

export function exclusive(lockOf, processor, { delay = 60_000, ...options } = {}) {
  return async (job) => {
    let began = false
    try {
      await client.using(lockOf(job), { wait: 0, ...options }, (signal) => {
        began = true
        return processor(job, signal)
      })
    } catch (error) {
      if (began || !(error instanceof Held)) throw error
      job.schedule(new Date(Date.now() + delay)) // Agenda saves the job after the run
    }
  }
}
