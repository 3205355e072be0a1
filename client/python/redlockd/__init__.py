"""Locks of redlockd, the lock daemon of this host.

    import redlockd

    with redlockd.Client() as c:  # $REDLOCK_SOCKET, or the default
        with c.lock("nightly-backup", wait=5) as lease:  # redlockd.Held, NoQuorum, Denied … after 5 s
            backup(lease.fence)  # stop when lease.lost is set, or lease.check() raises

A Client is one connection, for any number of threads and locks; a process needs one. It connects
when it is first used, and reconnects and resumes its leases when redlockd restarts. After a fork,
the child has no part in its parent's leases; the same Client works there, over a connection of its
own. redlockd.aio has the same for asyncio. All durations are in seconds.

A lease is lost if it cannot be extended, or is revoked. lease.lost is set before another client can
hold the lock (by the guard, a fifth of the ttl), even if redlockd hangs. Leaving the with block then
raises Lost. A write that is already in progress cannot be recalled: let the store refuse a
lease.fence that is smaller than one that it has seen.
"""

import contextlib
import math
import os
import select
import socket
import threading
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from . import _client, _core, _forks, _wire
from ._core import Call, Core
from ._wire import (
    DEFAULT_SOCKET,
    Already,
    Cancelled,
    Closed,
    Deadlock,
    Denied,
    Error,
    Held,
    Internal,
    Invalid,
    Limit,
    Line,
    Lost,
    NoQuorum,
    NotHeld,
    Seconds,
    Shutdown,
    Unavailable,
)

__all__ = [
    "DEFAULT_SOCKET",
    "Already",
    "Cancelled",
    "Client",
    "Closed",
    "Deadlock",
    "Denied",
    "Error",
    "Held",
    "Internal",
    "Invalid",
    "Lease",
    "Limit",
    "Line",
    "Lock",
    "Lost",
    "NoQuorum",
    "NotHeld",
    "Shutdown",
    "Unavailable",
    "aio",
]


class Lease(_core.Lease):
    """A lock that is held."""

    def __init__(self, core: Core, call: Call, request: _wire.Request, reply: Line):
        super().__init__(core, call, request, reply)
        self.lost = threading.Event()
        """Is set when the lease is lost. Check it, or wait for it, while working."""
        self._client: Optional["Client"]  # None: this process was forked from the holder
        self._on_lost: Optional[Callable[["Lease"], object]]
        self._client, self._on_lost = call.context

    def release(self) -> None:
        """Releases the lock. It raises Lost if the lease was lost before. In a child of the process
        that holds it, it does nothing."""
        if self._client:
            self._client._ask(lambda core: core.begin_release(self))

    def extend(self, ttl: Optional[Seconds] = None) -> None:
        """Extends a lease of hold="ttl" now, or changes the ttl."""
        options = "" if ttl is None else f" ttl={_wire.milliseconds('ttl', ttl)}"
        self._ask("EXTEND", options)

    def beat(self) -> None:
        """Tells the daemon that the work makes progress, for a lease with beat=."""
        self._ask("BEAT", "")

    def downgrade(self) -> None:
        """Makes an exclusive lease a shared one."""
        self._ask("EXTEND", " mode=shared")

    def _ask(self, verb: str, options: str) -> None:
        if self.cause is not None:
            raise self.cause
        assert self._client  # otherwise there is a cause
        self._client._ask(lambda core: core.about(verb, self, options))

    def _lost(self) -> None:
        self.lost.set()
        if self._on_lost:
            threading.Thread(target=self._on_lost, args=(self,), name="redlockd on_lost", daemon=True).start()

    def _forked(self) -> None:
        self._client = None
        self.lost = threading.Event()  # another thread may have held its lock
        self.lost.set()


def _pause(end: Optional[float]) -> float:
    """Returns how long to block until end; None: without a bound. Python handles no signal that
    comes just before a thread blocks, so it blocks for a second at most."""
    return 1.0 if end is None else min(1.0, max(0.0, end - _wire.clock()))


class Lock(contextlib.ContextDecorator):
    """One or several locks, to be taken: a with block, a decorator, or acquire()."""

    def __init__(self, client: "Client", request: _wire.Request, on_lost: Optional[Callable[[Lease], object]]):
        self._client = client
        self._request = request
        self._on_lost = on_lost
        self._held: Dict[int, List[Lease]] = {}  # of with blocks, by thread

    def acquire(self) -> Lease:
        """Takes the lock. It raises Held, NoQuorum, Denied and so on. Each lease needs a release()."""
        call = self._client._ask(lambda core: core.lock(self._request), self._on_lost)
        assert isinstance(call.lease, Lease)
        return call.lease

    def __enter__(self) -> Lease:
        lease = self.acquire()
        self._held.setdefault(threading.get_ident(), []).append(lease)
        return lease

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        held = self._held[threading.get_ident()]
        lease = held.pop()
        if not held:
            del self._held[threading.get_ident()]
        if isinstance(lease.cause, _core.Released):
            return  # the block has released it
        if kind is None:
            lease.release()
            return
        with contextlib.suppress(Error):  # the block's own exception is what counts
            lease.release()


class Client(_client.Client[Lease, Lock]):
    """A connection to redlockd, made when it is first used. It is safe for threads and for fork.

    patience: how long calls wait for a redlockd that restarts or hangs, in addition to their wait.
    """

    def _reset(self) -> None:
        self._mu = threading.Lock()  # guards everything below; never held while something blocks
        self._core = Core(self._path, self._patience, self._wake, self._hang_up, Lease)
        self._socket: Optional[socket.socket] = None
        self._thread: Optional[threading.Thread] = None
        self._pipe: Tuple[int, int] = (-1, -1)  # wakes the thread
        self._closing = False
        self._settled = threading.Condition(self._mu)  # a release may have ended, while closing

    def _make_lock(self, request: _wire.Request, on_lost: Optional[Callable[[Lease], object]]) -> Lock:
        return Lock(self, request, on_lost)

    def who(self, name: str) -> List[Line]:
        """Returns the holders of a lock, on all hosts, as PROTOCOL describes WHO."""
        words = _wire.check_names([name])
        return self._ask(lambda core: Call("WHO", words)).lines

    def list(self) -> List[Line]:
        """Returns what is held and waited for at this host's daemon, as PROTOCOL describes LIST."""
        return self._ask(lambda core: Call("LIST")).lines

    def status(self) -> Tuple[Line, List[Line]]:
        """Returns the state of the daemon, and of each node, as PROTOCOL describes STATUS."""
        call = self._ask(lambda core: Call("STATUS"))
        assert call.reply is not None
        return call.reply, call.lines

    def close(self) -> None:
        """Ends all leases, and the connection. Calls that wait raise Closed."""
        with self._mu:
            self._core.close_calls()
            self._flush()
            self._closing = True
            self._settled.wait_for(lambda: not self._core.is_releasing(), timeout=1)
            self._core.close()
            self._wake()
        _forks.clients.discard(self)
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a redlockd.Client cannot be pickled: make one in each process")

    # --- calls

    def _ask(self, make: Callable[[Core], Call], on_lost: Optional[Callable[[Lease], object]] = None) -> Call:
        """Begins a call, and waits for its end."""
        gate = threading.Lock()
        gate.acquire()
        call: Optional[Call] = None
        try:
            with self._mu:
                call = make(self._core)
                call.notify, call.context = gate.release, (self, on_lost)
                self._start_thread()
                self._core.begin(call)
                self._flush()
            end = self._core.give_up(call)
            while not gate.acquire(timeout=_pause(end)):
                if end is not None and end <= _wire.clock():
                    self._abandon(call, self._core.hangs(call))
                    break
        except BaseException:  # such as KeyboardInterrupt
            if call is not None:
                self._abandon(call, None)
            raise
        if call.error is not None:
            raise call.error
        return call

    def _abandon(self, call: Call, why: Optional[Error]) -> None:
        with self._mu:
            if why is None or call.state != _core.DONE:
                self._core.abandon(call)
                self._flush()
                call.error = why

    # --- the connection; its thread reads it, and callers write

    def _start_thread(self) -> None:
        if self._thread is None and not self._core.closed:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._thread = threading.Thread(target=self._run, name="redlockd", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:  # after a defect, no caller waits for this thread
            with self._mu:
                self._core.close()
                for end in self._pipe:
                    os.close(end)
                self._pipe = (-1, -1)

    def _step(self) -> bool:
        """Does what is due, and waits for the next event. It returns False at the end."""
        core = self._core
        with self._mu:
            core.run_timers()
            if core.closed:
                return False
            wanted = core.wants_connection()
            if wanted and core.dial_at <= _wire.clock():
                self._dial()
                wanted = core.wants_connection()
            self._flush()
            due = [at for at in (core.next_timer(), core.dial_at if wanted else None) if at is not None]
            timeout = max(0.0, min(due) - _wire.clock()) if due else None
            sock, pipe = self._socket, self._pipe[0]
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            if sock:
                poll.register(sock, select.POLLIN | (select.POLLOUT if core.out else 0))
        for fd, event in poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
            if fd == pipe:
                os.read(pipe, 1024)
            elif sock and event & ~select.POLLOUT:
                self._read(sock)
        return True

    def _read(self, sock: socket.socket) -> None:
        why = "redlockd closed the connection (stopped or killed?)"
        try:
            data = sock.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            data, why = b"", f"redlockd closed the connection ({error.strerror})"
        with self._mu:
            if sock is not self._socket:
                return  # it was hung up meanwhile
            if data:
                self._core.data(data)
            else:
                self._hang_up()
                self._core.ended(Unavailable("", why))
            if self._closing:
                self._settled.notify_all()

    def _dial(self) -> None:
        with _forks.lock:  # so that a child knows every socket that it inherits
            sock = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(self._path)
        except OSError as error:
            self._hang_up()
            why, final = _wire.dial_error(self._path, error)
            self._core.attempt_failed(why, final and self._core.links == 0)
            return
        self._core.connected()

    def _flush(self) -> None:
        """Writes what the socket takes without blocking. The thread writes the rest."""
        out = self._core.out
        if not out or not self._socket:
            return
        try:
            del out[: self._socket.send(out, _forks.NO_SIGNAL)]
        except BlockingIOError:
            pass
        except OSError:
            out.clear()  # the thread reads the end of the connection
        if out:
            self._wake()

    def _hang_up(self) -> None:
        if self._socket:
            with contextlib.suppress(OSError):  # the connection has ended
                self._socket.shutdown(socket.SHUT_RDWR)  # also for processes that have inherited it
            self._socket.close()
            self._socket = None

    def _wake(self) -> None:
        """Wakes the thread, unless it is the caller: then it is awake."""
        if self._thread is not threading.current_thread() and self._pipe[1] >= 0:
            with contextlib.suppress(BlockingIOError):  # it has many bytes to read
                os.write(self._pipe[1], b"x")

    def _forked(self) -> None:
        """Is called in the child after a fork."""
        _forks.leave(self._core, self._socket)
        for end in self._pipe:
            if end >= 0:
                os.close(end)
        closed = self._core.closed
        self._reset()
        self._core.closed = closed


from . import aio  # noqa: E402  for redlockd.aio
