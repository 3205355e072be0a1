// The program of README.md for the Node client.
import readline from 'node:readline'

import { Client } from '../../client/node/index.js'

let client, leases, waits, tasks, onLost
const say = (...words) => console.log(words.join(' '))
const code = (error) => error.code || 'UNAVAILABLE'

function settingsOf(words) {
  const settings = Object.fromEntries(words.map((word) => word.split('=')))
  for (const key of ['wait', 'ttl', 'guard']) if (key in settings) settings[key] = Number(settings[key])
  return settings
}

async function lock(key, names, ...words) {
  waits[key] = new AbortController()
  const { signal } = waits[key]
  try {
    const lease = await client.lock(names.split(',').map(decodeURIComponent), { signal, ...settingsOf(words) })
    leases[key] = lease
    say('granted', key, `fence=${lease.fence}`)
    const lost = () => {
      if (lease.cause.message.includes('closed')) return
      say('lost', key)
      if (onLost.has(key)) tasks.push(release(key))
    }
    if (lease.signal.aborted) lost()
    else lease.signal.addEventListener('abort', lost)
  } catch (error) {
    if (error.name === 'AbortError') say('cancelled', key)
    else say('refused', key, code(error))
  }
}

async function release(key) {
  try {
    await leases[key].release()
    say('released', key)
  } catch (error) {
    say('refused', key, code(error))
  }
}

const commands = {
  begin(path) {
    client = new Client(path)
    leases = {}
    waits = {}
    tasks = []
    onLost = new Set()
  },
  lock: (...words) => void tasks.push(lock(...words)),
  cancel: (key) => waits[key].abort(),
  check(key) {
    try {
      leases[key].check()
      say('checked', key)
    } catch (error) {
      say('refused', key, code(error))
    }
  },
  remaining: (key) => say('remaining', key, Math.round(leases[key].remaining())),
  onlost: (key) => void onLost.add(key),
  release: (key) => void tasks.push(release(key)),
  list: async () => say('listed', (await client.list()).length),
  async end() {
    await client.close()
    await Promise.all(tasks)
    say('ended')
  },
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [verb, ...words] = line.split(' ')
  void commands[verb](...words)
}
