#!/usr/bin/env python3
"""locked.py NAME STEPS [OPTION=VALUE ...]: works under a lock of redlockd.

It needs only Python's standard library. Exit status: 0 done, 1 held by somebody
else, 64 usage, 69 no redlockd or no quorum, 70 another refusal, 75 the lock was lost,
77 not allowed.
"""

import contextlib
import os
import socket
import sys
import threading
import urllib.parse

SOCKET = os.environ.get("REDLOCK_SOCKET") or "/run/redlockd/redlockd.sock"


class Refused(Exception):
    """The answer was ERR."""

    def status(self):
        code = str(self).split()[1]
        return {"HELD": 1, "NOQUORUM": 69, "SHUTDOWN": 69, "DENIED": 77, "LIMIT": 77, "LOST": 75}.get(code, 70)


class Lost(Exception):
    """Other processes may get the lock soon."""


class Lock:
    """A lock, held in a with block: with Lock("name", "wait=5s") as lock.

    In a program that forks, use the option hold=pid: otherwise the lock stays taken
    until the forked children have ended, too. A child must not work under the lock: it
    does not learn of a loss.
    """

    def __init__(self, name, *options):
        self.name = name
        self.quoted = urllib.parse.quote(name, safe="/", errors="surrogateescape")
        self.options = options
        self.lost = threading.Event()  # check it, or wait for it, while working
        self.why = ""
        self.unlocked = ""  # the answer to UNLOCK

    def __enter__(self):
        self.holder = os.getpid()
        self.conn = socket.socket(socket.AF_UNIX)  # when it ends, redlockd releases the lock
        self.conn.connect(SOCKET)
        self.lines = self.conn.makefile(encoding="utf-8", newline="\n")
        self.send("LOCK", self.quoted, *self.options)
        answer = next((line for line in self.lines if line.startswith(("OK", "ERR"))), "")  # BACK is no answer
        if not answer.startswith("OK "):
            raise Refused(answer.strip() or "ERR SHUTDOWN : redlockd is gone")
        fields = answer.partition(" : ")[0].strip("\n ").split(" ")[1:]
        self.fence = int(dict(field.split("=", 1) for field in fields)["fence"])
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        return self

    def __exit__(self, failure, *_):
        if os.getpid() != self.holder:  # a forked child: the lock is its parent's
            return
        if not self.lost.is_set():
            with contextlib.suppress(OSError):  # the connection has ended
                self.send("UNLOCK", self.quoted)
        self.listener.join()
        self.conn.close()
        if failure:
            return
        if self.unlocked.startswith("ERR "):
            raise Refused(self.unlocked)
        if self.lost.is_set():  # after the last check
            raise Lost(self.why)

    def send(self, *words):
        self.conn.sendall((" ".join(words) + "\n").encode(errors="surrogateescape"))  # the bytes of the arguments

    def listen(self):
        """Reads until the lock is released or lost."""
        self.why = "redlockd is gone, and nobody keeps the lock"
        with contextlib.suppress(OSError):  # the connection ended
            for line in self.lines:
                if line.startswith(("OK", "ERR")):
                    self.unlocked = line.strip()
                    return
                if line.startswith("LOST"):
                    self.why = line.strip()
                    break
                # else BACK: redlockd was restarted, and the lock is kept. BYE: it stops soon
        self.lost.set()


def work(lock, steps):
    """What the lock protects, in steps. Its storage should refuse a fencing token
    (lock.fence) that is smaller than the largest it has seen."""
    print(f"holding {lock.name}, fencing token {lock.fence}", flush=True)
    for step in range(1, steps + 1):
        if lock.lost.wait(0.1):
            raise Lost(f"stopped: {lock.why}")
        print(f"step {step}", flush=True)


def main():
    try:
        name, steps, options = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    except (IndexError, ValueError):
        print(f"usage: {sys.argv[0]} NAME STEPS [OPTION=VALUE ...]", file=sys.stderr)
        return 64
    try:
        with Lock(name, *options) as lock:
            work(lock, steps)
        print("done")
        return 0
    except Refused as refused:
        status, why = refused.status(), refused
    except Lost as lost:
        status, why = 75, lost
    except OSError as error:
        status, why = 69, f"{SOCKET}: {error.strerror}"
    print(f"{sys.argv[0]}: {why}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
