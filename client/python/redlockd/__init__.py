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

import _thread
import contextlib
import functools
import inspect
import sys
import threading
import time
from types import TracebackType
from typing import Any, Callable, Iterator, List, Optional, Tuple, Type, TypeVar

from . import _client, _core, _wire
from ._core import Call, Core
from ._driver import Event, Thread
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


_Result = TypeVar("_Result")


class Lease(_core.Handle):
    """A lock that is held. A with block of it releases it."""

    def __init__(self, call: Call):
        self.lost: threading.Event = Event()
        """Is set when the lease is lost. Check it, or wait for it, while working."""
        super().__init__(call)  # last: from then on it is told of a loss, and of a fork in another thread

    def release(self, wait: Optional[Seconds] = None) -> None:
        """Releases the lock. It raises Lost if the lease was lost before. In a child of the process
        that holds it, it does nothing. wait: how long to wait for the answer; after that it continues in
        the background, without an error. None: release_wait= of the lock."""
        if self._state.forked:
            return
        core = self._state._core
        call = core.about("UNLOCK", self._state)
        begin = functools.partial(core.release, handle=self)
        seconds = self._release_wait if wait is None else _wire.milliseconds("wait", wait) / 1000
        if sys.is_finalizing() or self._client._thread._id == _thread.get_ident():
            self._release_soon()  # in a __del__, which cannot wait
            return
        try:
            self._client._thread.ask(call, begin, seconds)
        except Unavailable as error:
            if seconds is None:
                raise
            _core.log.warning("%s (it is still being released)", error)

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

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self._released:
            return  # the block has released it
        try:
            self.release()
        except Error:
            if kind is None:  # else the exception of the block is what counts
                raise
        except BaseException:  # out of a signal handler, perhaps before the release has begun
            self._release_soon()
            raise

    def _ask(self, verb: str, options: str) -> None:
        if self.cause is not None:
            raise _wire.again(self.cause)
        core = self._state._core
        self._client._thread.ask(core.about(verb, self._state, options), core.begin)

    def _release_soon(self) -> None:
        """Releases the lock in the background, unless it was released before."""
        core = self._state._core
        if not self._state.forked:
            self._client._thread.do(lambda: core.release(core.about("UNLOCK", self._state), self))

    def _settle(self) -> None:
        gate = _thread.allocate_lock()
        gate.acquire()
        self._client._thread.do(lambda: self._state._core.settle(self._state, gate.release))
        while not gate.acquire(True, 1):  # and handle signals
            pass

    def _lost(self) -> None:
        self.lost.set()
        if self._on_lost:
            _thread.start_new_thread(self._on_lost, (self,))

    def _forked(self) -> None:
        self.lost.set()


class Lock(_client.Lock[Lease]):
    """One or several locks, to be taken: a with block, a decorator, or acquire(). Threads may share it."""

    _client: "Client"

    def acquire(self) -> Lease:
        """Takes the lock. It raises Held, NoQuorum, Denied and so on. Each lease needs a release(), or a
        with block of its own."""
        call, begin = self._call()
        try:
            self._client._thread.ask(call, begin)
            return call.handle  # type: ignore[no-any-return]
        except BaseException as error:
            self._leave(call, error)
            raise

    def _leave(self, call: Call, error: BaseException) -> None:
        """Releases what an acquire is granted that an exception has ended, such as KeyboardInterrupt."""
        if error is not call.error:
            self._client._thread.do(lambda: self._client._core.leave(call))
        if call.handle:
            self._blocks.end(call.handle)

    def try_acquire(self) -> Optional[Lease]:
        """Takes the lock, or returns None if another client holds it for all of wait, without an exception.
        Use it with wait=0."""
        try:
            return self.acquire()
        except Held:
            return None

    def locked(self) -> bool:
        """Reports whether anyone holds one of the names, on any host. Another client may take it right
        after the answer."""
        return any(_client.is_held(self._client.who(name)) for name in self._request.names)

    def __enter__(self) -> Lease:
        call, begin = self._call()
        try:
            self._client._thread.ask(call, begin)
            self._blocks.begin(_client.block_of(sys._getframe(1)), call.handle)
            return call.handle  # type: ignore[no-any-return]
        except BaseException as error:
            self._leave(call, error)
            raise

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        lease = None
        try:
            lease = self._blocks.lease(_client.block_of(sys._getframe(1)))
            lease.__exit__(kind, error, trace)
        except Error:
            raise
        except BaseException:  # out of a signal handler, perhaps before the release has begun
            if lease is None:
                lease = self._blocks.lease(_client.block_of(sys._getframe(1)))
            lease._release_soon()
            raise
        finally:
            if lease is not None:
                self._blocks.end(lease)

    def __call__(self, function: Callable[..., _Result]) -> Callable[..., _Result]:
        """Decorates a function: each call takes the lock."""
        kind = _client.kind_of(function)
        if kind:
            hint = "use redlockd.aio" if kind == "a coroutine function" else "use a with block inside it"
            raise TypeError(f"{function!r} is {kind}: the lock would be released before its body runs: {hint}")

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> _Result:
            with self.acquire():
                result = function(*args, **kwargs)
                if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
                    if inspect.iscoroutine(result):
                        result.close()  # without a warning that it was never awaited
                    raise TypeError(f"{function!r} returned {result!r}: the lock would be released before its body runs")
                return result

        return locked


class Client(_client.Client[Lease, Lock]):
    """A connection to redlockd, made when it is first used. It is safe for threads, signal handlers and
    fork.

    patience: how long calls wait for a redlockd that restarts or hangs, in addition to their wait.
    """

    def _start(self) -> None:
        self._thread = Thread(self._path, self._patience)
        self._local = threading.local()

    @property
    def _core(self) -> Core:  # type: ignore[override]
        return self._thread.core

    def _me(self, request: _wire.Request) -> Any:
        if request.hold == "pid":
            return self._thread  # the process holds it, whichever thread asks
        try:
            return self._local.me
        except AttributeError:
            self._local.me = me = object()  # an identity that, unlike get_ident(), no later thread has
            return me

    def _make_lock(self, request: _wire.Request, on_lost: Optional[Callable[[Lease], object]], reentrant: bool) -> Lock:
        return Lock(self, request, on_lost, reentrant)

    def _new_handle(self, call: Call) -> Lease:
        return Lease(call)

    def who(self, name: str) -> List[Line]:
        """Returns the holders of a lock, on all hosts, as PROTOCOL describes WHO."""
        return self._answer(_client.question("WHO", _wire.check_names([name]))).lines

    def list(self) -> List[Line]:
        """Returns what is held and waited for at this host's daemon, as PROTOCOL describes LIST."""
        return self._answer(_client.question("LIST")).lines

    def status(self) -> Tuple[Line, List[Line]]:
        """Returns the state of the daemon, and of each node, as PROTOCOL describes STATUS."""
        call = self._answer(_client.question("STATUS"))
        assert call.reply is not None
        return call.reply, call.lines

    def watch(self, name: str, every: Seconds = 1) -> Iterator[List[Line]]:
        """Yields the holders of a lock, as who() does: now, and whenever others hold it. It asks
        once in so many seconds, so it may miss one that holds it for less."""
        seconds = _wire.milliseconds("every", every) / 1000
        before = None
        while True:
            holders = self.who(name)
            now = _client.identities(holders)
            if now != before:
                yield holders
            before = now
            time.sleep(seconds)

    def force(self, name: str) -> Line:
        """Revokes a lock, as PROTOCOL describes FORCE: it needs the right. The holder may continue to work
        until it notices. The answer has n=, the number of leases that were revoked."""
        reply = self._answer(_client.force(name)).reply
        assert reply is not None
        return reply

    def close(self) -> None:
        """Ends all leases, and the connection. Calls that wait raise Closed."""
        self._thread.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and hasattr(self, "_thread"):  # else globals are gone, or __init__ failed
            self._thread.drop()

    def __reduce__(self) -> Any:
        raise TypeError("a redlockd.Client cannot be pickled: make one in each process")

    def _answer(self, call: Call) -> Call:
        self._thread.ask(call, self._core.begin)
        return call


from . import aio  # noqa: E402  for redlockd.aio
