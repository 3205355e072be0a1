// Takes and releases locks on one connection: pairs.mjs SOCKET WORKERS PAIRS.
import { once } from 'node:events'

import { Client } from '../../../client/node/index.js'

const [path, workers, pairs] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])]
const c = new Client(path)
await c.status()
console.log('connected')
await once(process.stdin, 'data')
process.stdin.destroy()
await Promise.all(
  Array.from({ length: workers }, async (_, n) => {
    for (let i = 0; i < Math.floor(pairs / workers); i++) await (await c.lock(`job-${n}`)).release()
  }),
)
console.log('done')
await c.close()
