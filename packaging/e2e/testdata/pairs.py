"""Takes and releases locks on one connection: pairs.py SOCKET WORKERS PAIRS [--aio]."""

import asyncio
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../client/python"))
import redlockd

path, workers, pairs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def start():
    print("connected", flush=True)
    sys.stdin.readline()


def threads():
    def work(name):
        for _ in range(pairs // workers):
            c.lock(name).acquire().release()

    with redlockd.Client(path) as c:
        c.status()
        start()
        all = [threading.Thread(target=work, args=(f"job-{n}",)) for n in range(workers)]
        for thread in all:
            thread.start()
        for thread in all:
            thread.join()
        print("done", flush=True)


async def tasks():
    async def work(name):
        for _ in range(pairs // workers):
            await (await c.lock(name).acquire()).release()

    async with redlockd.aio.Client(path) as c:
        await c.status()
        start()
        await asyncio.gather(*(work(f"job-{n}") for n in range(workers)))
        print("done", flush=True)


if "--aio" in sys.argv:
    asyncio.run(tasks())
else:
    threads()
