#!/usr/bin/env python3
"""The program of README.md for the Python client; with --aio, for asyncio."""

import asyncio
import functools
import os
import queue
import signal
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../client/python"))
import redlockd


def arguments(words):
    """Returns the names and options of lock. Durations are in milliseconds."""
    names = [urllib.parse.unquote(name) for name in words[0].split(",")]
    options = dict(word.split("=") for word in words[1:])
    for key in options.keys() & {"wait", "ttl", "guard"}:
        options[key] = int(options[key]) / 1000
    return names, options


def code(error):
    return error.code or "UNAVAILABLE"


on_lost = {}  # what to do after a loss, by key


def lost(key, lease):
    if "closed" not in str(lease.cause):
        say("lost", key)
        on_lost.pop(key, lambda: None)()


def say(*words):
    print(*words, flush=True)


def threads():
    commands = queue.Queue()

    def read():
        for line in sys.stdin:
            words = line.split()
            if words[0] == "cancel":
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # it waits for the lock
            else:
                commands.put(words)
        commands.put(["exit"])

    threading.Thread(target=read, daemon=True).start()
    client, leases = None, {}

    def release(key):
        try:
            leases[key].release()
            say("released", key)
        except redlockd.Error as error:
            say("refused", key, code(error))

    while (words := commands.get())[0] != "exit":
        verb, key = words[0], words[1] if len(words) > 1 else ""
        try:
            if verb == "begin":
                client, leases = redlockd.Client(key), {}
            elif verb == "end":
                client.close()
                say("ended")
            elif verb == "lock":
                names, options = arguments(words[2:])
                leases[key] = client.lock(*names, on_lost=functools.partial(lost, key), **options).acquire()
                say("granted", key, f"fence={leases[key].fence}")
            elif verb == "check":
                leases[key].check()
                say("checked", key)
            elif verb == "remaining":
                say("remaining", key, round(leases[key].remaining() * 1000))
            elif verb == "onlost":
                on_lost[key] = functools.partial(release, key)
            elif verb == "release":
                release(key)
            elif verb == "list":
                say("listed", len(client.list()))
        except redlockd.Error as error:
            say("refused", key, code(error))
        except KeyboardInterrupt:
            say("cancelled", key)


async def tasks():
    client, leases, waits = None, {}, {}

    async def lock(key, words):
        names, options = arguments(words)
        try:
            leases[key] = await client.lock(*names, on_lost=functools.partial(lost, key), **options).acquire()
            say("granted", key, f"fence={leases[key].fence}")
        except redlockd.Error as error:
            say("refused", key, code(error))
        except asyncio.CancelledError:
            say("cancelled", key)

    async def release(key):
        try:
            await leases[key].release()
            say("released", key)
        except redlockd.Error as error:
            say("refused", key, code(error))

    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, *words = line.split()
        if verb == "begin":
            client, leases, waits = redlockd.aio.Client(words[0]), {}, {}
        elif verb == "end":
            await client.close()
            await asyncio.gather(*waits.values())
            say("ended")
        elif verb == "lock":
            waits[words[0]] = loop.create_task(lock(words[0], words[1:]))
        elif verb == "cancel":
            waits[words[0]].cancel()
        elif verb == "check":
            try:
                leases[words[0]].check()
                say("checked", words[0])
            except redlockd.Error as error:
                say("refused", words[0], code(error))
        elif verb == "remaining":
            say("remaining", words[0], round(leases[words[0]].remaining() * 1000))
        elif verb == "onlost":
            on_lost[words[0]] = lambda key=words[0]: waits.update(lost=loop.create_task(release(key)))
        elif verb == "release":
            waits["release " + words[0]] = loop.create_task(release(words[0]))
        elif verb == "list":
            say("listed", len(await client.list()))


if "--aio" in sys.argv:
    asyncio.run(tasks())
else:
    threads()
