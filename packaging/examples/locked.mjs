#!/usr/bin/env node
// locked.mjs NAME STEPS [OPTION=VALUE ...]: works under a lock of redlockd.
//
// It needs only Node's own modules. Exit status: 0 done, 1 held by another process,
// 64 usage, 69 no redlockd or no quorum, 70 another refusal, 75 the lock was lost,
// 77 not allowed.
import { once } from "node:events";
import net from "node:net";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const socket = process.env.REDLOCK_SOCKET || "/run/redlockd/redlockd.sock";
const statusOf = { HELD: 1, NOQUORUM: 69, SHUTDOWN: 69, DENIED: 77, LIMIT: 77, LOST: 75 };

class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// withLock holds the lock while body runs. body gets the fencing token, and a signal
// that is aborted when the lock is lost: pass it to whatever must stop in time.
async function withLock(name, options, body) {
  const conn = net.connect(socket);
  const lost = new AbortController();
  let answered = () => {}; // answers the current request
  conn.on("error", () => {}); // "close" follows, or once() throws it
  await once(conn, "connect").catch((error) => {
    throw new Failure(69, `${socket}: ${error.message}`);
  });
  readline.createInterface({ input: conn }).on("line", (line) => {
    if (line.startsWith("LOST")) lost.abort(new Failure(75, `stopped: ${line}`));
    else if (/^(OK|ERR)/.test(line)) answered(line); // BACK: redlockd was restarted. BYE: it stops soon
  });
  conn.on("close", () => {
    answered("ERR SHUTDOWN : redlockd is gone");
    lost.abort(new Failure(75, "stopped: redlockd is gone, and nobody keeps the lock"));
  });
  const ask = async (...words) => {
    const answer = await new Promise((resolve) => {
      answered = resolve;
      conn.write(words.join(" ") + "\n");
    });
    const code = answer.match(/^ERR (\w+)/)?.[1];
    if (code) throw new Failure(statusOf[code] ?? 70, answer);
    return answer;
  };

  try {
    const quoted = encodeURIComponent(name);
    const granted = await ask("LOCK", quoted, ...options);
    const result = await body(Number(granted.match(/ fence=(\d+)/)[1]), lost.signal);
    lost.signal.throwIfAborted();
    await ask("UNLOCK", quoted);
    return result;
  } finally {
    conn.destroy(); // releases the lock if it is still held
  }
}

const [name, steps, ...options] = process.argv.slice(2);
if (!name || !/^\d+$/.test(steps)) {
  console.error(`usage: ${process.argv[1]} NAME STEPS [OPTION=VALUE ...]`);
  process.exit(64);
}
try {
  await withLock(name, options, async (fence, signal) => {
    // The storage should refuse a fencing token smaller than the largest it has seen.
    console.log(`holding ${name}, fencing token ${fence}`);
    for (let step = 1; step <= steps; step++) {
      await sleep(100, undefined, { signal }).catch(() => signal.throwIfAborted());
      console.log(`step ${step}`);
    }
  });
  console.log("done");
} catch (error) {
  console.error(`${process.argv[1]}: ${error.message}`);
  process.exitCode = error.status ?? 70;
}
