"""The thread of a client, which alone uses its core and its socket.

Callers append a request to a queue, and wake the thread. Neither takes a lock, so a call works in a
signal handler and in __del__, whatever they interrupt. If an exception, such as KeyboardInterrupt,
ends a caller's wait, the thread does not notice: each request is done from its begin to its end.
"""

import _thread
import contextlib
import errno
import functools
import math
import os
import select
import socket
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _core, _forks, _wire
from ._core import Call, Core
from ._wire import Unavailable

WRITE_AGAIN = 0.01  # after the kernel had no memory for a write


def pause(end: Optional[float]) -> float:
    """Returns how long to block until end; None: without a bound. Python handles no signal that
    comes just before a thread blocks, so it blocks for a second at most."""
    return 1.0 if end is None else min(1.0, max(0.0, end - _wire.clock()))


class Event(threading.Event):
    """An event that takes no lock: wait() and set() work in a signal handler that interrupts them."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._gates: Deque[Any] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with contextlib.suppress(IndexError):
            while True:
                self._gates.popleft().release()

    def clear(self) -> None:
        raise TypeError("a lease that was lost stays lost")

    def wait(self, timeout: Optional[float] = None) -> bool:
        gate = _thread.allocate_lock()
        gate.acquire()
        self._gates.append(gate)
        end = None if timeout is None else _wire.clock() + timeout
        while not self._is_set and not gate.acquire(True, pause(end)):
            if end is not None and end <= _wire.clock():
                break
        with contextlib.suppress(ValueError):
            self._gates.remove(gate)
        return self._is_set


class _Pipe:
    """Wakes the thread. It is open as long as someone refers to it, so that a late caller cannot
    write into another file with its number."""

    def __init__(self) -> None:
        self.ends = os.pipe()
        for end in self.ends:
            os.set_blocking(end, False)

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # it has many bytes to read
            os.write(self.ends[1], b"x")

    def close(self) -> None:
        ends, self.ends = self.ends, (-1, -1)
        for end in ends:
            if end >= 0:
                os.close(end)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and hasattr(self, "ends"):  # else globals are gone, or os.pipe failed
            self.close()


class Thread:
    """The thread of a client. It starts with the first request, and ends with close()."""

    def __init__(self, path: str, patience: float):
        self._path, self._patience = path, patience
        self._reset()
        _forks.clients.add(self)

    def _reset(self) -> None:
        self.core = Core(self._path, self._patience, lambda: None, self._hang_up, self._new_handle, self._log)
        self._requests: Deque[Callable[[], None]] = deque()
        self._pipes: Dict[str, _Pipe] = {}
        self._runs = _thread.allocate_lock()  # is held by the thread
        self._id: Optional[int] = None  # the thread's; None: it has not started yet
        self._over = False  # the thread has ended, or will read no more requests
        self.ended = Event()
        self._close_at: Optional[float] = None  # when the wait for releases in flight ends
        self._dropped = False  # no client and no lease refers to this thread
        self._socket: Optional[socket.socket] = None
        self._write_at = 0.0  # no write is tried before
        self._told: Deque[Tuple[Any, ...]] = deque()  # to be logged

    # --- what callers use

    def do(self, request: Callable[[], None]) -> None:
        """Lets the thread run a function soon. It takes no lock, and does not wait."""
        if not self._over:
            pipe = self._pipes.get("pipe") or self._pipes.setdefault("pipe", _Pipe())
        self._requests.append(request)
        if self._over:
            self._run_requests()  # nobody else does
        elif self._id is None:
            _thread.start_new_thread(self._run, ())  # if another caller has done so, it ends at once
        else:
            pipe.wake()

    def ask(self, call: Call, begin: Callable[[Call], None], patience: Optional[float] = None) -> None:
        """Begins a call, and waits for its end."""
        if sys.is_finalizing():
            raise _wire.Closed(call.what, "the interpreter ends, and with it this client")
        if self._id == _thread.get_ident():  # in a __del__
            raise RuntimeError("redlockd: a __del__ cannot wait for an answer here: only release() and close() work")
        gate = _thread.allocate_lock()
        gate.acquire()
        call.notify = gate.release
        self.do(functools.partial(begin, call))
        end = self.core.give_up(call) if patience is None else call.started + patience
        while not gate.acquire(True, pause(end)):
            if end is not None and end <= _wire.clock():
                self.do(functools.partial(self.core.leave, call, self.core.hangs(call)))
                end = None
        if call.error is not None:
            raise call.error

    def close(self) -> None:
        self.do(self._begin_close)
        if sys.is_finalizing() or self._id == _thread.get_ident():
            return
        self.ended.wait()

    def drop(self) -> None:
        """Ends the thread, because its client is no longer used. Leases that were not released stay, and
        then the thread ends after the last one."""
        if self._pipes:  # else it was never used
            self.do(functools.partial(setattr, self, "_dropped", True))

    # --- the thread

    def _run(self) -> None:
        if not self._runs.acquire(False):
            return
        self._id = _thread.get_ident()
        try:
            while self._step(self._pipes["pipe"]):
                pass
        finally:  # after a defect, no caller waits for this thread
            self._over = True
            self.core.close()
            self._run_requests()
            self._pipes.clear()
            _forks.clients.discard(self)
            self.ended.set()

    def _run_requests(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._requests.popleft()()

    def _step(self, pipe: _Pipe) -> bool:
        """Does what is due, and waits for the next event. It returns False at the end."""
        core = self.core
        core.run_timers()
        self._run_requests()
        if self._dropped and not core.leases:
            self._begin_close()
        if self._close_at is not None and (self._close_at <= _wire.clock() or not core.is_releasing()):
            core.close()
        if core.closed:
            return False
        if core.wants_connection() and core.dial_at <= _wire.clock():
            self._dial()
        self._flush()
        retry = core.out and self._socket and self._write_at > _wire.clock()
        due = [core.next_timer(), core.dial_at if core.wants_connection() else None, self._close_at, self._write_at if retry else None]
        times = [at for at in due if at is not None]
        timeout = max(0.0, min(times) - _wire.clock()) if times else None
        if self._requests:
            timeout = 0
        sock = self._socket
        if _readable(pipe.ends[0], sock, bool(core.out) and not retry, timeout) and sock:
            self._read(sock)
        return True

    def _begin_close(self) -> None:
        if self._close_at is None:
            self._close_at = _wire.clock() + 1
            self.core.close_calls()

    def _read(self, sock: socket.socket) -> None:
        why = "redlockd closed the connection (stopped or killed?)"
        try:
            data = sock.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            data, why = b"", f"redlockd closed the connection ({error.strerror})"
        if data:
            self.core.data(data)
        else:
            self._hang_up()
            self.core.ended(Unavailable("", why))

    def _dial(self) -> None:
        if dial(self, self.core):
            self.core.connected()

    def _flush(self) -> None:
        """Writes what the socket takes without blocking."""
        if self._socket and self._write_at <= _wire.clock():
            self._write_at = write(self._socket, self.core.out)

    def _hang_up(self) -> None:
        if self._socket:
            with contextlib.suppress(OSError):  # the connection has ended
                self._socket.shutdown(socket.SHUT_RDWR)  # also for processes that have inherited it
            self._socket.close()
            self._socket = None

    # --- what the program is told, never by this thread: a signal handler may hold the log's lock

    def _new_handle(self, call: Call) -> _core.Handle:
        return call.client._new_handle(call)  # type: ignore[no-any-return]

    def _log(self, *record: Any) -> None:
        self._told.append(record)
        with contextlib.suppress(RuntimeError):  # the interpreter ends
            _thread.start_new_thread(log_all, (self._told,))

    def _forked(self) -> None:
        """Is called in the child after a fork."""
        _forks.leave(self.core, self._socket)
        for pipe in self._pipes.values():
            pipe.close()
        closed = self.core.closed
        self._reset()
        self.core.closed = closed


def log_all(told: Deque[Tuple[Any, ...]]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            _core.log.log(*told.popleft())


def dial(driver: Any, core: Core) -> Optional[socket.socket]:
    """Makes the _socket of a thread, or of a client of aio, and connects it. It returns None if that failed."""
    with _forks.lock:  # so that a child knows every socket that it inherits
        sock = driver._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(core.path)
    except OSError as error:
        driver._hang_up()
        why, final = _wire.dial_error(core.path, error)
        core.attempt_failed(why, final and core.links == 0)
        return None
    return sock


def write(sock: socket.socket, out: bytearray) -> float:
    """Writes what the socket takes without blocking. It returns when to try again; 0: when poll says so."""
    if out:
        try:
            del out[: sock.send(out, _forks.NO_SIGNAL)]
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ENOMEM, errno.EINTR):
                return _wire.clock() + WRITE_AGAIN
            out.clear()  # the connection has ended, as read() will say
    return 0.0


def _readable(pipe: int, sock: Optional[socket.socket], writes: bool, timeout: Optional[float]) -> bool:
    """Waits until the pipe or the socket can be read, or the socket written. It reports whether the
    socket can be read."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        if sock:
            poll.register(sock, select.POLLIN | (select.POLLOUT if writes else 0))
        events = poll.poll(None if timeout is None else math.ceil(timeout * 1000))
        ready = [fd for fd, event in events if event & ~select.POLLOUT]
    else:  # eventlet removes poll
        files: List[Any] = [pipe, sock] if sock else [pipe]
        ready = [f if f == pipe else f.fileno() for f in select.select(files, [sock] if sock and writes else [], [], timeout)[0]]
    if pipe in ready:
        os.read(pipe, 1024)
    return sock is not None and sock.fileno() in ready
