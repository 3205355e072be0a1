"""What the clients for threads and for asyncio have in common."""

import contextlib
import functools
import inspect
from types import FrameType
from typing import Any, Callable, Generic, List, NoReturn, Optional, Tuple, TypeVar

from . import _wire
from ._core import Call, Core, Handle, State, log

AnyLease = TypeVar("AnyLease", bound=Handle)
AnyLock = TypeVar("AnyLock")

# Options that programs know from other libraries, and ours.
OTHERS = {
    "timeout": "ttl= is the lease time, wait= how long to wait, max= the longest time to hold it",
    "blocking": "wait=0 does not wait",
    "blocking_timeout": "wait= is how long to wait",
    "expire": "ttl= is the lease time; redlockd extends the lease",
    "auto_renewal": "redlockd extends each lease, unless hold='ttl'",
    "retry_times": "wait= is how long to wait; a waiter is notified",
    "retry_delay": "wait= is how long to wait; a waiter is notified",
    "sleep": "wait= is how long to wait; a waiter is notified",
}


def block_of(caller: FrameType) -> Any:
    """Returns what identifies a with block, at its begin and at its end, whichever thread or task runs
    them: the frame of its function or, with an ExitStack, the stack."""
    stack = caller.f_locals.get("self") if caller.f_globals.get("__name__") == "contextlib" else None
    return stack if isinstance(stack, (contextlib.ExitStack, contextlib.AsyncExitStack)) else caller


class Blocks(Generic[AnyLease]):
    """The with blocks of a Lock that have begun. One Lock may be used by several threads or tasks, and
    a block may end in another one than it began in, so each end is matched with its own begin."""

    def __init__(self) -> None:
        self._begun: List[Tuple[Any, AnyLease]] = []

    def begin(self, block: Any, lease: AnyLease) -> None:
        self._begun.append((block, lease))

    def lease(self, block: Any) -> AnyLease:
        """Returns what a block that ends has entered."""
        begun = list(self._begun)
        for one, lease in reversed(begun):
            if one is block:
                return lease
        if len(begun) != 1:
            text = "none of their leases is released: call lock() for each block, or release() of each lease"
            raise RuntimeError(f"{len(begun)} blocks use this Lock, and it cannot tell which one ends: {text}")
        return begun[0][1]

    def end(self, lease: AnyLease) -> None:
        for entry in list(self._begun):
            if entry[1] is lease:
                self._begun.remove(entry)


class Lock(Generic[AnyLease]):
    """One or several locks, to be taken."""

    def __init__(self, client: "Client[AnyLease, Any]", request: _wire.Request, on_lost: Optional[Callable[[AnyLease], object]], reentrant: bool):
        self._client = client
        self._request = request
        self._on_lost = on_lost
        self._reentrant = reentrant
        self._blocks: Blocks[AnyLease] = Blocks()

    def owned(self) -> bool:
        """Reports whether this thread (or task) holds it through this client. It does not ask the daemon."""
        me = self._client._me(self._request)
        return any(lease.holder is me and set(self._request.names) <= set(lease.names) for lease in self._client._held())

    def _call(self) -> Tuple[Call, Callable[[Call], None]]:
        """Returns a call that takes the lock, and how it begins."""
        core = self._client._core
        call = core.lock(self._request)
        call.client, call.on_lost = self._client, self._on_lost
        call.holder = me = self._client._me(self._request)
        names = set(self._request.names)
        for lease in self._client._held():
            if lease.holder is not me or not names & set(lease.names):
                continue
            if self._reentrant:
                if names == set(lease.names) and (self._request.mode, self._request.slots) == (lease.mode, lease.slots):
                    return call, functools.partial(core.enter_again, lease=lease)
                text = f"already holds lease {lease.name!r}, with other names, mode= or slots=: release it first"
                raise _wire.Already(call.what, text)
            if self._request.wait is None and "exclusive" in (self._request.mode, lease.mode) and not self._request.slots:
                where = f"this thread or task already holds lease {lease.name!r}"
                log.warning("%s waits for itself: %s (reentrant=True lets it enter again)", call.what, where)
        return call, core.begin

    def _describe(self) -> str:
        return f"<{type(self).__module__}.Lock {','.join(self._request.names)!r}{self._request.options}>"

    __repr__ = _describe


def kind_of(function: Any) -> str:
    """Returns what a function is whose call does not run its body; an empty text for any other one."""
    for one in (function, getattr(function, "__call__", None)):
        if inspect.isasyncgenfunction(one):
            return "an async generator"
        if inspect.iscoroutinefunction(one):
            return "a coroutine function"
        if inspect.isgeneratorfunction(one):
            return "a generator"
    return ""


class Client(Generic[AnyLease, AnyLock]):
    """A client, without its connection."""

    _core: Core

    def __init__(self, path: Optional[str] = None, *, patience: _wire.Seconds = 5):
        self._path = _wire.socket_path(path)
        self._patience = _wire.milliseconds("patience", patience) / 1000
        self._start()

    def _start(self) -> None:
        """Makes the state of a client that has no connection."""
        raise NotImplementedError

    def _me(self, request: _wire.Request) -> Any:
        """Returns what holds a lock that is taken now: a thread, a task, or the process."""
        raise NotImplementedError

    def _make_lock(self, request: _wire.Request, on_lost: Optional[Callable[[AnyLease], object]], reentrant: bool) -> AnyLock:
        raise NotImplementedError

    def _held(self) -> List[State]:
        return [lease for lease in list(self._core.leases.values()) if lease.cause is None]

    def lock(
        self,
        *names: str,
        wait: Optional[_wire.Seconds] = None,
        ttl: Optional[_wire.Seconds] = None,
        mode: _wire.Mode = "exclusive",
        slots: Optional[int] = None,
        hold: _wire.Hold = "conn",
        pid: Optional[int] = None,
        max: Optional[_wire.Seconds] = None,
        min: Optional[_wire.Seconds] = None,
        guard: Optional[_wire.Seconds] = None,
        linger: Optional[_wire.Seconds] = None,
        beat: Optional[_wire.Seconds] = None,
        note: Optional[str] = None,
        reentrant: bool = False,
        release_wait: Optional[_wire.Seconds] = None,
        on_lost: Optional[Callable[[AnyLease], object]] = None,
        **unknown: NoReturn,
    ) -> AnyLock:
        """Returns a lock to be taken. Several names are taken together, all or none.

        wait: how long to wait for it, 0 for not at all; None: without a bound. on_lost is called with
        the lease if it is lost: in a thread of its own or, with asyncio, in the event loop. Two locks of
        the same name exclude each other, also in the same thread or task; with reentrant=True a thread
        or task that holds it enters again. release_wait: how long a release waits for its answer; after
        that it continues in the background, without an error. None: it waits for the client's patience,
        and then raises Unavailable. The other options are LOCK's in PROTOCOL. Durations are in seconds.
        """
        for option in unknown:
            known = [p.name + "=" for p in inspect.signature(self.lock).parameters.values() if p.kind is p.KEYWORD_ONLY]
            raise TypeError(f"lock() has no option {option}=: {OTHERS.get(option) or 'there are ' + ', '.join(known)}")
        durations = {"ttl": ttl, "max": max, "min": min, "guard": guard, "linger": linger, "beat": beat}
        request = _wire.Request(names, wait, mode, hold, slots, pid, note, durations)
        if release_wait is not None:
            request.release_wait = _wire.milliseconds("release_wait", release_wait) / 1000
        return self._make_lock(request, on_lost, reentrant)

    @property
    def reconnects(self) -> int:
        """How many connections were made after the first one."""
        return self._core.links - 1 if self._core.links else 0

    @property
    def resumed(self) -> int:
        """How many leases a later connection has resumed."""
        return self._core.resumed

    def __repr__(self) -> str:
        core = self._core
        state = "closed" if core.closed else "connected" if core.link else "not connected"
        return f"<{type(self).__module__}.Client {self._path!r} {state}, {len(self._held())} leases>"


def question(verb: str, words: str = "") -> Call:
    """Returns a call that asks the daemon something."""
    call = Call(verb, words)
    call.started = _wire.clock()
    return call


def force(name: str) -> Call:
    call = question("FORCE", _wire.check_names([name]))
    call.what = f'force "{name}"'
    call.once = True  # a second one could revoke the lock of the next holder
    return call


def identities(holders: List[_wire.Line]) -> List[Tuple[Optional[str], ...]]:
    """Returns what tells one answer of WHO from another one."""
    return sorted(tuple(line.get(key, "") for key in ("host", "pid", "user", "slot", "state", "waiting")) for line in holders)


def is_held(lines: List[_wire.Line]) -> bool:
    """Reports whether a lock is taken, after WHO."""
    return any("waiting" not in line for line in lines)
