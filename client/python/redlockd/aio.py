"""The same as redlockd, for asyncio.

    import redlockd

    async with redlockd.aio.Client() as c:
        async with c.lock("nightly-backup", wait=5) as lease:
            await backup(lease.fence)

If the lease is lost, the block is cancelled, as by asyncio.timeout, and the async with statement
raises Lost. A Client belongs to one event loop, and uses no thread. Without a running loop nothing
notices a loss: do not block the loop for longer than the guard.
"""

import asyncio
import contextlib
import functools
import inspect
import select
import socket
import sys
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Coroutine, List, Optional, Tuple, Type, TypeVar

from . import _client, _forks, _wire
from ._core import Call, Core, Handle, State, log
from ._driver import dial, write
from ._wire import Error, Held, Line, Seconds, Unavailable

__all__ = ["Client", "Lease", "Lock"]

_Result = TypeVar("_Result")


class Lease(Handle):
    """A lock that is held. An async with block of it releases it."""

    def __init__(self, call: Call):
        self.lost = asyncio.Event()
        """Is set when the lease is lost."""
        self._block: Optional["_Block"] = None
        super().__init__(call)  # last: from then on it is told of a loss

    async def release(self, wait: Optional[Seconds] = None) -> None:
        """Releases the lock. It raises Lost if the lease was lost before. In a child of the process
        that holds it, it does nothing. wait: how long to wait for the answer; after that it continues in
        the background, without an error. None: release_wait= of the lock."""
        if self._state.forked:
            return
        core = self._state._core
        seconds = self._release_wait if wait is None else _wire.milliseconds("wait", wait) / 1000
        call = core.about("UNLOCK", self._state)
        try:
            await self._client._ask(call, functools.partial(core.release, handle=self), seconds)
        except Unavailable as error:
            if seconds is None:
                raise
            log.warning("%s (it is still being released)", error)

    async def extend(self, ttl: Optional[Seconds] = None) -> None:
        """Extends a lease of hold="ttl" now, or changes the ttl."""
        await self._ask("EXTEND", "" if ttl is None else f" ttl={_wire.milliseconds('ttl', ttl)}")

    async def beat(self) -> None:
        """Tells the daemon that the work makes progress, for a lease with beat=."""
        await self._ask("BEAT", "")

    async def downgrade(self) -> None:
        """Makes an exclusive lease a shared one."""
        await self._ask("EXTEND", " mode=shared")

    async def __aenter__(self) -> "Lease":
        self._block = _Block(self)
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self._block:
            await self._block.leave(kind)

    async def _ask(self, verb: str, options: str) -> None:
        if self.cause is not None:
            raise _wire.again(self.cause)
        core = self._state._core
        await self._client._ask(core.about(verb, self._state, options), core.begin)

    def _settle(self) -> None:
        self._client._settle(self._state)

    def _lost(self) -> None:
        if self._client._loop.is_closed():
            self.lost.set()
        else:
            self._client._loop.call_soon(self._tell)  # never inside a call of the program

    def _tell(self) -> None:
        self.lost.set()
        if self._block:
            self._block.cancel()
        if self._on_lost:
            self._on_lost(self)


class _Block:
    """The body of an async with statement, which a loss cancels."""

    def __init__(self, lease: Lease):
        self.lease = lease
        self.cancelled = False
        task = asyncio.current_task()
        assert task
        self.task = task
        self.cancelling = 0
        if sys.version_info >= (3, 11):
            self.cancelling = task.cancelling()
        if lease.cause is not None:  # lost before the task ran
            self.cancel()

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = self.task.cancel()

    async def leave(self, kind: Optional[Type[BaseException]]) -> None:
        """Ends the block. It raises Lost if the loss cancelled it, and was all that cancelled it."""
        self.lease._block = None
        ours = self.cancelled
        if self.cancelled and self.task is asyncio.current_task():
            if kind is None:  # the block ended before it was cancelled, or swallowed that
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if sys.version_info >= (3, 11) and self.task.uncancel() > self.cancelling:
                ours = False
                kind = kind or asyncio.CancelledError
        if kind is None or ours and issubclass(kind, asyncio.CancelledError):
            if not self.lease._released:
                await self.lease.release()  # raises Lost
            return
        with contextlib.suppress(Error):  # the block's own exception is what counts
            if not self.lease._released:
                await self.lease.release()
        if self.cancelled and not ours:
            raise asyncio.CancelledError  # from outside, at the same time


class Lock(_client.Lock[Lease]):
    """One or several locks, to be taken: an async with block, a decorator, or acquire(). Tasks may share it."""

    _client: "Client"

    async def acquire(self) -> Lease:
        """Takes the lock. It raises Held, NoQuorum, Denied and so on. Each lease needs a release(), or an
        async with block of its own. If the task is cancelled while it waits, the lock is not taken."""
        self._client._bind()
        call, begin = self._call()
        await self._client._ask(call, begin)
        return call.handle  # type: ignore[no-any-return]

    async def try_acquire(self) -> Optional[Lease]:
        """Takes the lock, or returns None if another client holds it for all of wait, without an exception.
        Use it with wait=0."""
        try:
            return await self.acquire()
        except Held:
            return None

    async def locked(self) -> bool:
        """Reports whether anyone holds one of the names, on any host. Another client may take it right
        after the answer."""
        return any([_client.is_held(await self._client.who(name)) for name in self._request.names])

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        return self._enter(_client.block_of(sys._getframe(1)))

    def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> Coroutine[Any, Any, None]:
        return self._exit(_client.block_of(sys._getframe(1)), kind)

    async def _enter(self, block: Any) -> Lease:
        lease = await self.acquire()
        self._blocks.begin(block, lease)
        return await lease.__aenter__()

    async def _exit(self, block: Any, kind: Optional[Type[BaseException]]) -> None:
        lease = self._blocks.lease(block)
        self._blocks.end(lease)
        await lease.__aexit__(kind, None, None)

    def __call__(self, function: Callable[..., Awaitable[_Result]]) -> Callable[..., Coroutine[Any, Any, _Result]]:
        """Decorates a coroutine function: each call takes the lock."""
        kind = _client.kind_of(function)
        if kind != "a coroutine function":
            hint = "use redlockd.Client for it" if not kind else "use an async with block inside it"
            raise TypeError(f"{function!r} is {kind or 'no coroutine function'}, and locks of redlockd.aio decorate only coroutine functions: {hint}")

        @functools.wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> _Result:
            lease = await self.acquire()
            async with lease:
                return await function(*args, **kwargs)

        return locked


class Client(_client.Client[Lease, Lock]):
    """A connection to redlockd, made when it is first used, in one event loop at a time.

    patience: how long calls wait for a redlockd that restarts or hangs, in addition to their wait.
    """

    def _start(self) -> None:
        self._core = Core(self._path, self._patience, self._wake, self._hang_up, Lease, log.log)
        self._loop: asyncio.AbstractEventLoop
        self._has_loop = False
        self._socket: Optional[socket.socket] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._awake: Optional[asyncio.Handle] = None
        self._writes = False
        self._settled: Optional["asyncio.Future[None]"] = None  # close waits for it
        _forks.clients.add(self)

    def _me(self, request: _wire.Request) -> Any:
        return self if request.hold == "pid" else asyncio.current_task()

    def _make_lock(self, request: _wire.Request, on_lost: Optional[Callable[[Lease], object]], reentrant: bool) -> Lock:
        return Lock(self, request, on_lost, reentrant)

    async def who(self, name: str) -> List[Line]:
        """Returns the holders of a lock, on all hosts, as PROTOCOL describes WHO."""
        return (await self._answer(_client.question("WHO", _wire.check_names([name])))).lines

    async def list(self) -> List[Line]:
        """Returns what is held and waited for at this host's daemon, as PROTOCOL describes LIST."""
        return (await self._answer(_client.question("LIST"))).lines

    async def status(self) -> Tuple[Line, List[Line]]:
        """Returns the state of the daemon, and of each node, as PROTOCOL describes STATUS."""
        call = await self._answer(_client.question("STATUS"))
        assert call.reply is not None
        return call.reply, call.lines

    async def watch(self, name: str, every: Seconds = 1) -> AsyncIterator[List[Line]]:
        """Yields the holders of a lock, as who() does: now, and whenever others hold it. It asks
        once in so many seconds, so it may miss one that holds it for less."""
        seconds = _wire.milliseconds("every", every) / 1000
        before = None
        while True:
            holders = await self.who(name)
            now = _client.identities(holders)
            if now != before:
                yield holders
            before = now
            await asyncio.sleep(seconds)

    async def force(self, name: str) -> Line:
        """Revokes a lock, as PROTOCOL describes FORCE: it needs the right. The holder may continue to work
        until it notices. The answer has n=, the number of leases that were revoked."""
        reply = (await self._answer(_client.force(name))).reply
        assert reply is not None
        return reply

    async def close(self) -> None:
        """Ends all leases, and the connection. Calls that wait raise Closed."""
        self._core.close_calls()
        self._flush()
        try:
            if self._core.is_releasing() and self._loop is asyncio.get_running_loop():
                self._settled = self._loop.create_future()
                await asyncio.wait({self._settled}, timeout=1)
        finally:  # even if it is cancelled
            self._core.close()
            if self._timer:
                self._timer.cancel()
            _forks.clients.discard(self)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _answer(self, call: Call) -> Call:
        self._bind()
        await self._ask(call, self._core.begin)
        return call

    async def _ask(self, call: Call, begin: Callable[[Call], None], patience: Optional[float] = None) -> None:
        """Begins a call, and waits for its end."""
        self._bind()
        done = self._loop.create_future()
        call.notify = lambda: None if done.done() else done.set_result(None)
        call.client = call.client or self
        begin(call)
        self._flush()
        end = self._core.give_up(call) if patience is None else call.started + patience
        try:
            await asyncio.wait({done}, timeout=None if end is None else max(0, end - _wire.clock()))
        except asyncio.CancelledError:
            self._core.leave(call)
            self._flush()
            raise
        if not done.done():
            self._core.leave(call, self._core.hangs(call))
            self._flush()
        if call.error is not None:
            raise call.error

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._has_loop and loop is not self._loop:
            if not self._loop.is_closed():
                raise RuntimeError("this redlockd.aio.Client belongs to another event loop that still exists: make one in each loop")
            if not self._core.closed:
                self._core.close("its event loop has ended")
                _forks.clients.discard(self)
                self._start()
        self._loop, self._has_loop = loop, True

    def _new_handle(self, call: Call) -> Lease:
        return Lease(call)

    def _settle(self, lease: State) -> None:
        """Finds out whether a lease is held whose end this process noticed late: the loop was blocked, and
        check() is no coroutine. So it blocks the loop for the answer."""
        if self._socket:
            self._read()
        self._core.run_timers()
        self._flush()
        while lease._doubt is not None and self._socket:
            at = self._core.next_timer() or 0.0
            select.select([self._socket], [self._socket] if self._core.out else [], [], max(0.0, at - _wire.clock()))
            self._read()
            self._core.run_timers()
            self._flush()

    # --- the connection

    def _wake(self) -> None:
        """Lets the loop do what is due."""
        if self._has_loop and self._awake is None:
            self._awake = self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._awake = None
        core = self._core
        if self._timer:
            self._timer.cancel()
            self._timer = None
        core.run_timers()
        if core.closed:
            return
        if core.wants_connection() and core.dial_at <= _wire.clock():
            self._dial()
        self._flush()
        if self._settled and not self._settled.done() and not core.is_releasing():
            self._settled.set_result(None)
        due = [at for at in (core.next_timer(), core.dial_at if core.wants_connection() else None) if at is not None]
        if due and self._awake is None:
            self._timer = self._loop.call_later(max(0.0, min(due) - _wire.clock()), self._step)

    def _dial(self) -> None:
        sock = dial(self, self._core)
        if sock:
            self._loop.add_reader(sock, self._read)
            self._core.connected()

    def _read(self) -> None:
        assert self._socket
        why = "redlockd closed the connection (stopped or killed?)"
        try:
            data = self._socket.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            data, why = b"", f"redlockd closed the connection ({error.strerror})"
        if data:
            self._core.data(data)
        else:
            self._hang_up()
            self._core.ended(Unavailable("", why))
        if self._core.out or self._settled:
            self._wake()

    def _flush(self) -> None:
        """Writes what the socket takes without blocking. The loop writes the rest."""
        if not self._socket:
            return
        out = self._core.out
        write_at = write(self._socket, out)
        if write_at:
            self._loop.call_later(write_at - _wire.clock(), self._flush)
        writes = bool(out) and not write_at
        if writes != self._writes:
            self._writes = writes
            if writes:
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)

    def _hang_up(self) -> None:
        if not self._socket:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._writes = False
        with contextlib.suppress(OSError):  # the connection has ended
            self._socket.shutdown(socket.SHUT_RDWR)  # also for processes that have inherited it
        self._socket.close()
        self._socket = None

    def _forked(self) -> None:
        """Is called in the child after a fork. The loop's selector is shared with the parent, so only
        the descriptor is closed."""
        _forks.leave(self._core, self._socket)
        closed = self._core.closed
        self._start()
        self._core.closed = closed
