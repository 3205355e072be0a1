"""A daemon inside a test's process, for tests of programs that use locks.

    from redlockd.testing import Daemon

    with Daemon() as daemon:  # sets $REDLOCK_SOCKET
        run_the_program()
        daemon.lose("nightly-backup")  # its holder gets Lost
        daemon.refuse("NOQUORUM")  # until daemon.allow()
        daemon.restart()  # clients reconnect, and resume their leases

With pytest, a conftest.py with pytest_plugins = ["redlockd.pytest_plugin"] has the fixture
redlock_daemon. The daemon speaks the protocol, so clients in any language can use it. It has no nodes:
it excludes only its own clients, and forgets all locks at its end. Tokens grow, as those of redlockd do.
It does not know beat=, min=, linger=, access rules and change of nodes. `redlockd -dev` does.
"""

import contextlib
import itertools
import math
import os
import selectors
import shutil
import socket
import tempfile
import threading
import urllib.parse
from typing import Any, Dict, List, Optional, Tuple

from . import _wire
from ._wire import clock

__all__ = ["Daemon"]

MAX_TTL = 30.0


class _Conn:
    """A connection of a client."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.input = b""

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            self.sock.sendall(line.encode() + b"\n")


class _Request:
    """A LOCK that waits, or is held."""

    def __init__(self, conn: _Conn, tag: str, words: str, options: Dict[str, str]):
        self.conn: Optional[_Conn] = conn
        self.tag = tag
        self.words = words
        self.names = [urllib.parse.unquote(name) for name in words.split(",")]
        self.options = options
        self.shared = options.get("mode") == "shared"
        self.slots = int(options.get("slots", "1"))
        self.hold = options.get("hold", "conn")
        self.ttl = _seconds(options.get("ttl", "10000"))
        self.max = _seconds(options.get("max", "0"))
        self.guard = _seconds(options["guard"]) if "guard" in options else min(self.ttl, self.max or self.ttl) / 5
        wait = options.get("wait", "forever")
        self.until = math.inf if wait == "forever" else clock() + _seconds(wait)
        self.lease = ""
        self.fence = self.slot = 0
        self.deadline = self.end = math.inf  # end: what max= and hold=ttl allow
        self.by_daemon = ""  # the reason of a loss

    def extend(self) -> None:
        if self.hold != "ttl":
            self.deadline = min(clock() + self.ttl, self.end)

    def granted(self) -> str:
        left = max(0, round((self.deadline - clock()) * 1000))
        text = f"OK lock={self.words} lease={self.lease} fence={self.fence} ttl={left}"
        text += f" deadline={int(self.deadline * 1000)} guard={round(self.guard * 1000)}"
        return text + (f" slot={self.slot}" if self.slots > 1 else "")


def _seconds(text: str) -> float:
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    return float(text) / 1000


class Daemon:
    """A daemon in a thread of this process. path is its socket."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="redlockd")
        self.path = os.path.join(self._folder, "s")
        self._mu = threading.RLock()  # guards everything below
        self._conns: Dict[int, _Conn] = {}
        self._held: List[_Request] = []
        self._waiting: List[_Request] = []
        self._refusals: Dict[Optional[str], Tuple[str, str]] = {}  # by name; None: all
        self._fences = itertools.count(1_000_000)
        self._leases = itertools.count(1)
        self._over = False
        self._environment = os.environ.get("REDLOCK_SOCKET")
        self._wakes, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listen()
        self._thread = threading.Thread(target=self._run, name="redlockd.testing", daemon=True)
        self._thread.start()

    # --- what tests use

    def __enter__(self) -> "Daemon":
        os.environ["REDLOCK_SOCKET"] = self.path
        return self

    def __exit__(self, *_: Any) -> None:
        if self._environment is None:
            os.environ.pop("REDLOCK_SOCKET", None)
        else:
            os.environ["REDLOCK_SOCKET"] = self._environment
        self.close()

    def close(self) -> None:
        """Ends the daemon and all connections. Clients lose their leases."""
        with self._mu:
            self._over = True
            self._wakes.send(b"x")
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def refuse(self, code: str, text: str = "refused by the test", name: Optional[str] = None) -> None:
        """Refuses each LOCK of a name, or all, from now on: with HELD, NOQUORUM, DENIED, LIMIT and so on."""
        with self._mu:
            self._refusals[name] = (code, text)

    def allow(self) -> None:
        """Ends all refusals."""
        with self._mu:
            self._refusals.clear()

    def lose(self, name: str, reason: str = "quorum") -> int:
        """Takes a lock from its holders, which get Lost. It returns how many there were."""
        with self._mu:
            lost = [held for held in self._held if name in held.names]
            for held in lost:
                self._lose(held, reason)
            self._grant()
            return len(lost)

    def restart(self) -> None:
        """Closes all connections, as a restart does without systemd. Leases stay until their deadlines, and
        clients resume them."""
        with self._mu:
            self._selector.unregister(self._listener)
            self._listener.close()
            os.unlink(self.path)
            for conn in list(self._conns.values()):
                self._end(conn, releases=False)
            self._listen()
            self._wakes.send(b"x")

    def held(self) -> List[str]:
        """Returns the names that are held."""
        with self._mu:
            return sorted(name for held in self._held for name in held.names)

    def waiting(self) -> List[str]:
        """Returns the names that clients wait for."""
        with self._mu:
            return sorted(name for request in self._waiting for name in request.names)

    # --- the thread

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(100)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _run(self) -> None:
        while not self._over:
            with self._mu:
                due = [held.deadline - held.guard for held in self._held] + [request.until for request in self._waiting]
            first = min(due, default=math.inf)
            events = self._selector.select(None if first == math.inf else max(0.0, first - clock()))
            with self._mu:
                for key, _ in events:
                    self._handle(key.fileobj)
                self._expire()
        with self._mu:
            for conn in list(self._conns.values()):
                self._end(conn)
            for sock in (self._listener, self._wakes, self._woken):
                sock.close()
            self._selector.close()

    def _handle(self, file: Any) -> None:
        if file is self._woken:
            self._woken.recv(100)
        elif file is self._listener:
            sock, _ = self._listener.accept()
            self._conns[sock.fileno()] = _Conn(sock)
            self._selector.register(sock, selectors.EVENT_READ)
        elif file.fileno() in self._conns:
            self._read(self._conns[file.fileno()])

    def _read(self, conn: _Conn) -> None:
        try:
            data = conn.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._end(conn)
            return
        *lines, conn.input = (conn.input + data).split(b"\n")
        for line in lines:
            words = [word for word in line.decode().rstrip("\r").split(" ") if word]
            if words:
                tag = words.pop(0) + " " if words[0].startswith("@") else ""
                self._do(conn, tag, words[0], words[1:])

    def _end(self, conn: _Conn, releases: bool = True) -> None:
        self._selector.unregister(conn.sock)
        del self._conns[conn.sock.fileno()]
        conn.sock.close()
        self._waiting = [request for request in self._waiting if request.conn is not conn]
        for held in [held for held in self._held if held.conn is conn]:
            held.conn = None
            if releases and held.hold == "conn":
                self._held.remove(held)
        self._grant()

    def _expire(self) -> None:
        now = clock()
        for held in list(self._held):
            if held.conn and held.hold == "conn":
                held.extend()
            if held.deadline - held.guard <= now:
                self._lose(held, "expired" if held.hold == "ttl" or not held.conn else "max")
        for request in list(self._waiting):
            if request.until <= now:
                self._waiting.remove(request)
                self._refuse_held(request)
        self._grant()

    def _lose(self, held: _Request, reason: str) -> None:
        self._held.remove(held)
        if held.conn:
            held.conn.say(f"LOST lock={held.words} lease={held.lease} reason={reason} : {','.join(held.names)}: taken away by the test ({reason})")

    def _others(self, request: _Request) -> List[_Request]:
        """Returns the holders that a request has to wait for."""
        others = [held for held in self._held if set(held.names) & set(request.names)]
        if request.shared and all(held.shared for held in others):
            return []
        if request.slots > 1 and all(held.slots > 1 for held in others) and len(others) < request.slots:
            return []
        return others

    def _grant(self) -> None:
        """Grants what waiters can get. A waiter comes after earlier ones of the same names."""
        passed: List[str] = []
        for request in list(self._waiting):
            if set(request.names) & set(passed) or self._others(request):
                passed += request.names
                continue
            self._waiting.remove(request)
            request.lease = f"L{next(self._leases)}"
            request.fence = next(self._fences)
            used = {held.slot for held in self._held if set(held.names) & set(request.names)}
            request.slot = next(n for n in itertools.count(1) if n not in used) if request.slots > 1 else 0
            request.deadline = clock() + request.ttl
            if request.max:
                request.end = clock() + request.max
                request.deadline = min(request.deadline, request.end)
            self._held.append(request)
            assert request.conn
            request.conn.say(request.tag + request.granted())

    def _refuse_held(self, request: _Request) -> None:
        assert request.conn
        text = f"host={_wire.escape(socket.gethostname())} pid={os.getpid()} user=test : {','.join(request.names)}: held by another client of the test"
        request.conn.say(f"{request.tag}ERR HELD lock={request.words} {text}")

    def _do(self, conn: _Conn, tag: str, verb: str, words: List[str]) -> None:
        options = {key: urllib.parse.unquote(value) for key, equals, value in (word.partition("=") for word in words) if equals}
        name = next((word for word in words if "=" not in word), "")
        if verb in ("LOCK", "TRY"):
            request = _Request(conn, tag, name, {**options, "wait": "0"} if verb == "TRY" else options)
            refusal = next((self._refusals[key] for key in (*request.names, None) if key in self._refusals), None)
            if refusal:
                conn.say(f"{tag}ERR {refusal[0]} lock={name} : {refusal[1]}")
                return
            self._waiting.append(request)
            self._grant()
            if request in self._waiting and request.until <= clock():
                self._waiting.remove(request)
                self._refuse_held(request)
        elif verb == "CANCEL":
            for request in [r for r in self._waiting if r.conn is conn and r.tag == f"@{name} "]:
                self._waiting.remove(request)
                conn.say(f"{request.tag}ERR CANCELLED : cancelled")
            conn.say(f"{tag}OK")
        elif verb in ("UNLOCK", "CHECK", "EXTEND", "BEAT", "RESUME"):
            held = next((h for h in self._held if h.lease == options.get("lease") or h.words == name and h.conn is conn and "lease" not in options), None)
            if held is None:
                conn.say(f"{tag}ERR NOTHELD : not held")
                return
            if verb == "UNLOCK":
                self._held.remove(held)
                conn.say(f"{tag}OK lock={held.words}")
                self._grant()
                return
            if verb == "RESUME":
                held.conn = conn
            if "ttl" in options:
                held.ttl = _seconds(options["ttl"])
                held.guard = held.ttl / 5
            if verb == "EXTEND":
                held.shared = held.shared or options.get("mode") == "shared"
                held.deadline = min(clock() + held.ttl, held.end)
            held.extend()
            conn.say(tag + held.granted())
            self._grant()
        elif verb == "FORCE":
            conn.say(f"{tag}OK lock={name} n={self.lose(urllib.parse.unquote(name), 'forced')}")
        elif verb in ("WHO", "LIST"):
            lines = [(r, "held") for r in self._held] + ([(r, "waiting") for r in self._waiting] if verb == "LIST" else [])
            lines = [(r, state) for r, state in lines if not name or urllib.parse.unquote(name) in r.names]
            for r, state in lines:
                note = f" note={_wire.escape(r.options['note'])}" if "note" in r.options else ""
                conn.say(f"{tag}- lock={r.words} state={state} pid={os.getpid()} fence={r.fence}{note}")
            conn.say(f"{tag}OK n={len(lines)}")
        elif verb == "STATUS":
            conn.say(f"{tag}OK n=0 nodes=0 quorum=0 leases={len(self._held)} waiters={len(self._waiting)} : a daemon of a test: locks work")
        elif verb in ("HELLO", "PING", "QUIT"):
            conn.say(f"{tag}OK" + (f" version=0 ttl=10000 max_ttl={round(MAX_TTL * 1000)} clock={int(clock() * 1000)}" if verb == "HELLO" else ""))
        else:
            conn.say(f"{tag}ERR VERB : a daemon of a test does not know {verb}")
