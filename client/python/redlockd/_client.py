"""What the clients for threads and for asyncio have in common."""

from typing import Callable, Generic, Optional, TypeVar

from . import _forks, _wire
from ._core import Core, Lease

AnyLease = TypeVar("AnyLease", bound=Lease)
AnyLock = TypeVar("AnyLock")


class Client(Generic[AnyLease, AnyLock]):
    """A client, without its connection."""

    _core: Core

    def __init__(self, path: Optional[str] = None, *, patience: _wire.Seconds = 5):
        self._path = _wire.socket_path(path)
        self._patience = _wire.milliseconds("patience", patience) / 1000
        self._reset()
        _forks.clients.add(self)

    def _reset(self) -> None:
        """Makes the state of a client that has no connection."""
        raise NotImplementedError

    def _make_lock(self, request: _wire.Request, on_lost: Optional[Callable[[AnyLease], object]]) -> AnyLock:
        raise NotImplementedError

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
        on_lost: Optional[Callable[[AnyLease], object]] = None,
    ) -> AnyLock:
        """Returns a lock to be taken. Several names are taken together, all or none.

        wait: how long to wait for it, 0 for not at all; None: without a bound. on_lost is called with
        the lease if it is lost: in a thread of its own or, with asyncio, in the event loop. The other
        options are LOCK's in PROTOCOL; durations are in seconds. Two locks of the same name exclude
        each other, also in the same thread or task.
        """
        durations = {"ttl": ttl, "max": max, "min": min, "guard": guard, "linger": linger, "beat": beat}
        return self._make_lock(_wire.Request(names, wait, mode, hold, slots, pid, note, durations), on_lost)

    @property
    def reconnects(self) -> int:
        """How many connections were made after the first one."""
        return self._core.links - 1 if self._core.links else 0

    @property
    def resumed(self) -> int:
        """How many leases a later connection has resumed."""
        return self._core.resumed
