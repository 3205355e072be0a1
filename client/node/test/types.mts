// The compiler checks this file; nothing runs it.
import { Client, Held, Lost, type Lease, type LockOptions } from 'redlockd'
import { startDaemon, testDaemon } from 'redlockd/testing'

export async function uses(): Promise<number> {
  const c = new Client(undefined, { patience: 1000 })
  const options: LockOptions = { wait: 5000, mode: 'shared', signal: new AbortController().signal }
  const lease: Lease = await c.lock(['a', 'b'], options)
  await lease[Symbol.asyncDispose]()
  const old: string = await c.using(['job'], 5000, async (signal) => {
    if (signal.aborted) throw signal.error
    return 'done'
  })
  await c.using('job', async () => undefined)
  c.on('lost', (gone, error) => console.log(gone.name, error.fields.reason))
  const maybe: Lease | null = await c.tryLock('job', { reentrant: true, releaseWait: 100 })
  // @ts-expect-error it may be null
  maybe.release()
  for await (const holders of c.watch('job', { every: 100 })) if (holders.length > 0 || (await c.locked('job'))) break
  await maybe?.release({ wait: 0 })
  await c.using('job', 5000, { wait: 0 }, async () => undefined)
  const [holder] = await c.who('job')
  const quorum: unknown = (await c.status()).quorum
  // @ts-expect-error a duration is a number of milliseconds
  await c.lock('a', { wait: '5s' })
  // @ts-expect-error there is no such option
  await c.lock('a', { retryCount: 3 })
  // @ts-expect-error a routine is needed
  await c.using('a', 5000)
  try {
    return await c.using('nightly-backup', { wait: 0 }, async (_signal, held) => held.fence)
  } catch (error) {
    if (error instanceof Held) return Number(error.fields.pid)
    if (error instanceof Lost) return old.length + (holder?.text.length ?? 0) + String(quorum).length
    throw error
  }
}

export async function tests(t: { after(f: () => Promise<void>): void }): Promise<string[]> {
  const daemon = await startDaemon()
  daemon.refuse('NOQUORUM', 'job')
  await daemon.restart({ pause: 5, keep: false })
  return (await testDaemon(t)).holders('job').flatMap((holder) => holder.names)
}
