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
import os
import socket
import sys
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from . import _client, _core, _forks, _wire
from ._core import Call, Core
from ._wire import Error, Line, Seconds, Unavailable

__all__ = ["Client", "Lease", "Lock"]

_Result = TypeVar("_Result")


class Lease(_core.Lease):
    """A lock that is held."""

    def __init__(self, core: Core, call: Call, request: _wire.Request, reply: Line):
        super().__init__(core, call, request, reply)
        self.lost = asyncio.Event()
        """Is set when the lease is lost."""
        self._client: Optional["Client"]  # None: this process was forked from the holder
        self._on_lost: Optional[Callable[["Lease"], object]]
        self._client, self._on_lost = call.context
        self._block: Optional["_Block"] = None

    async def release(self) -> None:
        """Releases the lock. It raises Lost if the lease was lost before. In a child of the process
        that holds it, it does nothing."""
        if self._client:
            await self._client._ask(lambda core: core.begin_release(self))

    async def extend(self, ttl: Optional[Seconds] = None) -> None:
        """Extends a lease of hold="ttl" now, or changes the ttl."""
        await self._ask("EXTEND", "" if ttl is None else f" ttl={_wire.milliseconds('ttl', ttl)}")

    async def beat(self) -> None:
        """Tells the daemon that the work makes progress, for a lease with beat=."""
        await self._ask("BEAT", "")

    async def downgrade(self) -> None:
        """Makes an exclusive lease a shared one."""
        await self._ask("EXTEND", " mode=shared")

    async def _ask(self, verb: str, options: str) -> None:
        if self.cause is not None:
            raise self.cause
        assert self._client  # otherwise there is a cause
        await self._client._ask(lambda core: core.about(verb, self, options))

    def _lost(self) -> None:
        assert self._client
        self._client._loop.call_soon(self._tell)  # never inside a call of the program

    def _tell(self) -> None:
        self.lost.set()
        if self._block:
            self._block.cancel()
        if self._on_lost:
            self._on_lost(self)

    def _forked(self) -> None:
        self._client = None


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
        lease._block = self
        if lease.cause is not None:  # lost before the task ran
            self.cancel()

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.task.cancel()

    async def leave(self, kind: Optional[Type[BaseException]]) -> None:
        """Ends the block. It raises Lost if the loss cancelled it."""
        self.lease._block = None
        if self.cancelled:
            ours = True
            if sys.version_info >= (3, 11):
                ours = self.task.uncancel() <= self.cancelling
            if kind is None:  # the block ended before it was cancelled, or swallowed that
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if ours and (kind is None or issubclass(kind, asyncio.CancelledError)):
                await self._release_lost()
                assert self.lease.cause is not None
                raise self.lease.cause
        if kind is None:
            if not isinstance(self.lease.cause, _core.Released):  # by the block
                await self.lease.release()
            return
        await self._release_lost()

    async def _release_lost(self) -> None:
        with contextlib.suppress(Error):  # the block's own exception is what counts
            await self.lease.release()


class Lock:
    """One or several locks, to be taken: an async with block, a decorator, or acquire()."""

    def __init__(self, client: "Client", request: _wire.Request, on_lost: Optional[Callable[[Lease], object]]):
        self._client = client
        self._request = request
        self._on_lost = on_lost
        self._held: Dict[Any, List[_Block]] = {}  # by task

    async def acquire(self) -> Lease:
        """Takes the lock. It raises Held, NoQuorum, Denied and so on. Each lease needs a release().
        If the task is cancelled while it waits, the lock is not taken."""
        call = await self._client._ask(lambda core: core.lock(self._request), self._on_lost)
        assert isinstance(call.lease, Lease)
        return call.lease

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        self._held.setdefault(asyncio.current_task(), []).append(_Block(lease))
        return lease

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        held = self._held[asyncio.current_task()]
        block = held.pop()
        if not held:
            del self._held[asyncio.current_task()]
        await block.leave(kind)

    def __call__(self, function: Callable[..., Awaitable[_Result]]) -> Callable[..., Awaitable[_Result]]:
        """Decorates a coroutine function: each call takes the lock."""

        @functools.wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> _Result:
            async with self:
                return await function(*args, **kwargs)

        return locked


class Client(_client.Client[Lease, Lock]):
    """A connection to redlockd, made when it is first used, in one event loop.

    patience: how long calls wait for a redlockd that restarts or hangs, in addition to their wait.
    """

    def _reset(self) -> None:
        self._core = Core(self._path, self._patience, self._wake, self._hang_up, Lease)
        self._loop: asyncio.AbstractEventLoop
        self._has_loop = False
        self._socket: Optional[socket.socket] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._awake: Optional[asyncio.Handle] = None
        self._writes = False
        self._settled: Optional["asyncio.Future[None]"] = None  # close waits for it

    def _make_lock(self, request: _wire.Request, on_lost: Optional[Callable[[Lease], object]]) -> Lock:
        return Lock(self, request, on_lost)

    async def who(self, name: str) -> List[Line]:
        """Returns the holders of a lock, on all hosts, as PROTOCOL describes WHO."""
        words = _wire.check_names([name])
        return (await self._ask(lambda core: Call("WHO", words))).lines

    async def list(self) -> List[Line]:
        """Returns what is held and waited for at this host's daemon, as PROTOCOL describes LIST."""
        return (await self._ask(lambda core: Call("LIST"))).lines

    async def status(self) -> Tuple[Line, List[Line]]:
        """Returns the state of the daemon, and of each node, as PROTOCOL describes STATUS."""
        call = await self._ask(lambda core: Call("STATUS"))
        assert call.reply is not None
        return call.reply, call.lines

    async def close(self) -> None:
        """Ends all leases, and the connection. Calls that wait raise Closed."""
        self._core.close_calls()
        self._flush()
        if self._core.is_releasing():
            self._settled = self._loop.create_future()
            await asyncio.wait({self._settled}, timeout=1)
        self._core.close()
        if self._timer:
            self._timer.cancel()
        _forks.clients.discard(self)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _ask(self, make: Callable[[Core], Call], on_lost: Optional[Callable[[Lease], object]] = None) -> Call:
        """Begins a call, and waits for its end."""
        self._bind()
        done = self._loop.create_future()
        call = make(self._core)
        call.context = (self, on_lost)
        call.notify = lambda: None if done.done() else done.set_result(None)
        self._core.begin(call)
        self._flush()
        end = self._core.give_up(call)
        try:
            await asyncio.wait({done}, timeout=None if end is None else max(0, end - _wire.clock()))
        except asyncio.CancelledError:
            self._core.abandon(call)
            self._flush()
            raise
        if call.state != _core.DONE and call.error is None:
            call.error = self._core.hangs(call)
            self._core.abandon(call)
            self._flush()
        if call.error is not None:
            raise call.error
        return call

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._has_loop:
            self._loop, self._has_loop = loop, True
        elif loop is not self._loop:
            raise RuntimeError("this redlockd.aio.Client belongs to another event loop: make one in each loop")

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
        out = self._core.out
        if not self._socket:
            return
        try:
            if out:
                del out[: self._socket.send(out, _forks.NO_SIGNAL)]
        except BlockingIOError:
            pass
        except OSError:
            out.clear()  # the loop reads the end of the connection
        if bool(out) != self._writes:
            self._writes = bool(out)
            if out:
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
        self._reset()
        self._core.closed = closed
