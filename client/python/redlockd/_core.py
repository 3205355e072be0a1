"""What a client knows and decides: calls, leases, timers, reconnection. It does no I/O.

A driver owns a Core: it connects, passes what it reads to data(), writes what is in out, and calls
run_timers() when next_timer() has come. Only the driver's thread may be in a Core; others may make
calls (lock, about) and read leases. The driver reads what waits in the socket before it runs timers.

A call may be sent more than once: on a new connection, and after BACK. Each sending has a tag of
its own, which is never used again, and the first answer counts. A LOCK has an id=, so that a second
one gets the grant of the first.
"""

import heapq
import itertools
import logging
import os
import random
import sys
import warnings
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

from . import _wire as wire
from ._wire import Line, clock

MIN_CHECK = 0.01  # the shortest time before the daemon is asked again
LATE = 0.05  # a timer that runs so late shows that this process was stopped or busy
LATE_ANSWER = 1.0  # how long the daemon has to answer then, if the deadline has passed
RETRY_UNLOCK = 1.0  # between a refusal of a background UNLOCK and the next try
RETRY_RESUME = 0.25  # between a temporary refusal and the next RESUME
RESEND_PAUSE = 0.25  # between LIMIT as the answer to a resend and the next one
MAX_LIMITS = 20  # such refusals of a call
MAX_SHUTDOWNS = 3  # connections on which a call is refused with SHUTDOWN
BYE_TIMEOUT = 1.0  # how long answers are read after the daemon said that it stops
GREETING_TIMEOUT = 5.0  # for the answer to HELLO
CLOCK_TOLERANCE = 0.01  # by which two readings of one clock may seem to differ
MIN_PAUSE, MAX_PAUSE = 0.01, 1.0  # between two attempts to connect
MAX_UNWRITTEN = 1 << 20  # bytes that stay unwritten if the daemon does not read

# The daemon bounds the requests in flight on one connection (4,096 by default). Locks may wait for
# long, and must leave room for the requests that end their wait.
ROOM = {"LOCK": 3072, "RESUME": 256, "other": 512}

NEW, QUEUED, WAITING, ABANDONED, DONE = "new", "queued", "waiting", "abandoned", "done"

log = logging.getLogger("redlockd")

STRAY_LOCK, STRAY = "stray LOCK", "stray"  # the call of this tag was answered under another one

Timer = List[Any]  # [when, number, function or None]


class Call:
    """A request and its answer."""

    def __init__(self, verb: str, words: str = "", lease: "Optional[State]" = None, request: Optional[wire.Request] = None):
        self.verb = verb
        self.words = words
        self.lease = lease
        self.request = request  # of LOCK
        self.owner = ""
        self.what = verb.lower()  # for errors
        self.state = NEW
        self.tags: List[str] = []  # on this connection
        self.sent_on = 0  # the last connection; 0: never sent
        self.resent = False
        self.once = False  # it is never sent again
        self.started = 0.0
        self.until: Optional[float] = None  # how long it waits for a connection; None: without a bound
        self.fails = 0  # Core.fails when it began
        self.limits = self.shutdowns = 0
        self.lines: List[Line] = []
        self.reply: Optional[Line] = None  # OK
        self.error: Optional[wire.Error] = None
        self.notify: Callable[[], None] = lambda: None  # called once, at the end, if a caller waits
        self.handle: Any = None  # of LOCK: what the caller gets
        self.holder: Any = None  # of LOCK: the thread, task or process that asks
        self.client: Any = None
        self.on_lost: Optional[Callable[[Any], object]] = None

    def room(self) -> str:
        return self.verb if self.verb in ROOM else "other"


class State:
    """The state of a lock that is held, until it is released or lost. Handles share it."""

    def __init__(self, core: "Core", call: Call, request: wire.Request, reply: Line):
        self._core = core
        self._owner = call.owner
        self._words = request.words
        self._hold = request.hold
        self._own_guard = request.guard
        self._ttl = request.ttl
        self._max = request.max if request.hold != "ttl" else 0.0
        self._bound = 0.0  # a deadline from here on is caused by max=; 0: no bound
        self.names: Tuple[str, ...] = request.names
        self.name = ",".join(request.names)
        self.mode = request.mode
        self.slots = request.slots
        self.holder = call.holder
        self.id: str = reply["lease"]
        self.fence: int = wire.number(reply, "fence")
        self.slot: int = wire.number(reply, "slot")
        self.cause: Optional[wire.Error] = None
        self.forked = False  # this process was forked from the holder
        self.handles: "List[weakref.ref[Handle]]" = []
        self.kept: List[Handle] = []  # those with on_lost, which is called even if the program has dropped them
        self.count = 0  # handles that were not released
        self._deadline = self._guard = self._longest = 0.0
        self._timer: Optional[Timer] = None
        self._checking = False
        self._doubt: Optional[Call] = None  # a CHECK, because this process noticed the deadline late
        self._doubters: List[Callable[[], None]] = []  # are called when the doubt has ended
        self._detached = False  # its connection has ended, and no other one has resumed it yet
        self._unwatched = False  # a process holds it, and the connection that would report its loss has ended
        self._maybe_kept = False  # RESUME was refused, but the daemon may keep it
        self._unlock_due = False  # lost here, but the daemon may keep it: unlock it at the deadline
        self._unlocking = False  # the holder has stopped

    def end_at(self) -> float:
        return self._deadline - self._guard

    def _extend(self, reply: Line, now: float) -> None:
        """Sets a later deadline. Answers can overtake each other, so an earlier one is older."""
        left = wire.number(reply, "ttl") / 1000
        at = wire.number(reply, "deadline") / 1000
        if at:
            at = at - self._core.ahead if wire.HAS_BOOTTIME else now + left
            self._deadline = max(self._deadline, min(at, now + left + 0.001))
        self._longest = max(self._longest, left)
        fifth = self._longest / 5
        said = wire.number(reply, "guard") / 1000
        self._guard = self._own_guard or min(said or (self._ttl or self._longest) / 5, fifth)

    def remaining(self) -> float:
        if self.cause is not None or self._doubt is not None:
            return 0.0
        return max(0.0, self._deadline - clock())


class Handle:
    """A lock that is held. It is what a program gets."""

    def __init__(self, call: Call):
        assert call.lease
        self._state = state = call.lease
        self._client = call.client
        self._on_lost = call.on_lost
        self._released = False
        self._release_wait = call.request.release_wait if call.request else None
        self.names = state.names
        self.name = state.name
        self.id = state.id
        self.fence = state.fence
        """The fencing token: larger than those of all earlier holders of the lock."""
        self.slot = state.slot
        state.count += 1
        state.handles.append(weakref.ref(self))
        if call.on_lost:
            state.kept.append(self)

    @property
    def cause(self) -> Optional[wire.Error]:
        """Why it ended; None while it is held."""
        return wire.NotHeld(f'lease "{self.name}"', "not held: it is already released") if self._released else self._state.cause

    def remaining(self) -> float:
        """Returns for how many seconds the lease is certainly held, unless it is extended."""
        return 0.0 if self._released else self._state.remaining()

    def check(self) -> None:
        """Raises Lost unless the lease is certainly held for longer than its guard. It reads the clock,
        and asks the daemon only if this process was stopped or busy for so long that it cannot know."""
        if self.cause is None and clock() >= self._state.end_at():
            self._settle()
        if self.cause is not None:
            raise wire.again(self.cause)
        if clock() >= self._state.end_at():
            raise self._state._core.expired(self._state)

    def _settle(self) -> None:
        """Waits until it is known whether the lease is still held."""
        raise NotImplementedError

    def _lost(self) -> None:
        """Tells the program that the lease was lost."""
        raise NotImplementedError

    def _forked(self) -> None:
        """Is called in the child after a fork."""

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and not self._released and self._state.cause is None:
            text = f"lease {self.name!r} was dropped, but not released: it is held until the client or the process ends"
            warnings.warn(text, ResourceWarning, source=self)

    def __repr__(self) -> str:
        cause = self.cause
        if cause is None:
            state = f"held, for {self.remaining():.1f} s more unless it is extended"
        else:
            state = "released" if self._released else "lost"
        return f"<{type(self).__module__}.Lease {self.name!r} fence={self.fence} {state}>"


class Released(wire.NotHeld):
    """The cause of a lease that was released."""


class Core:
    """The state of a client."""

    def __init__(
        self,
        path: str,
        patience: float,
        wake: Callable[[], None],
        hang_up: Callable[[], None],
        new_handle: Callable[[Call], Handle],
        tell: Callable[..., None],
    ):
        self.path = path
        self.patience = patience
        self.wake = wake  # a timer is nearer than before, or a connection is wanted
        self.hang_up = hang_up  # closes the connection; the driver then does not call ended()
        self.new_handle = new_handle
        self.tell = tell  # logs a level, a message and its arguments
        self.out = bytearray()  # to be written
        self.link = 0  # the number of the connection; 0: none that may be used
        self.links = 0
        self.greeting = False  # HELLO was sent on a new connection
        self.greeted_at = 0.0  # when it was sent
        self.ahead = 0.0  # by how much the daemon's clock is ahead of this one, at most
        self.restarts = self.resumed = 0
        self.closed = False
        self.leases: Dict[str, State] = {}  # by id: held, or still to be unlocked
        self.lost_at: Optional[float] = None  # when the last connection ended
        self.connected_at = 0.0
        self.dial_at = 0.0  # when the next attempt to connect may be made
        self.tries = 0
        self.fails = 0  # attempts that failed
        self.why: wire.Error = wire.Unavailable("", "not connected yet")
        self._bye = False
        self._refused: Optional[wire.Error] = None  # why the daemon closes a new connection
        self._bye_timer: Optional[Timer] = None
        self._greeting_timer: Optional[Timer] = None
        self._input = b""
        self._flight: Dict[Call, None] = {}
        self._tags: Dict[str, Union[Call, str]] = {}
        self._tag = itertools.count(1)
        self._busy = dict.fromkeys(ROOM, 0)
        self._queues: Dict[str, Deque[Call]] = {room: deque() for room in ROOM}
        self._timers: List[Timer] = []
        self._dead = 0  # timers that were cancelled
        self._timer_numbers = itertools.count()
        self._id_prefix = f"{int.from_bytes(os.urandom(6), 'big'):x}."
        self._owners = itertools.count(1)

    # --- timers

    def at(self, when: float, run: Callable[[], None]) -> Timer:
        timer: Timer = [when, next(self._timer_numbers), run]
        heapq.heappush(self._timers, timer)
        if self._timers[0] is timer:
            self.wake()
        return timer

    def cancel_timer(self, timer: Optional[Timer]) -> None:
        if timer is None or timer[2] is None:
            return
        timer[2] = None
        self._dead += 1
        if self._dead > 64 and 2 * self._dead > len(self._timers):
            self._timers = [t for t in self._timers if t[2] is not None]
            heapq.heapify(self._timers)
            self._dead = 0

    def next_timer(self) -> Optional[float]:
        """Returns when run_timers has something to do."""
        return self._timers[0][0] if self._timers else None

    def run_timers(self) -> None:
        now = clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)
            run = timer[2]
            if run is None:
                self._dead -= 1
            else:
                timer[2] = None
                run()

    # --- calls

    def lock(self, request: wire.Request) -> Call:
        """Returns a call that takes a lock, with an owner of its own: all locks exclude each other."""
        call = Call("LOCK", request=request)
        call.started = clock()
        call.what = f'lock "{",".join(request.names)}"'
        n = next(self._owners)
        call.words = f"{request.words}{request.options} id={self._id_prefix}{n:x}"
        if request.hold != "pid":
            call.owner = f"{n:x}"
            call.words += f" owner={call.owner}"
        return call

    def about(self, verb: str, lease: State, options: str = "") -> Call:
        """Returns a call about a lease."""
        call = Call(verb, f"lease={lease.id}{options}", lease)
        call.started = clock()
        call.what = f'{verb.lower()} "{lease.name}"'
        return call

    def begin(self, call: Call) -> None:
        """Starts a call. Its notify is called when it has ended, perhaps before begin returns."""
        if call.state != NEW:
            return  # the caller has left
        call.started = call.started or clock()
        if call.request:
            call.until = None if call.request.wait is None else call.started + call.request.wait
        else:
            call.until = call.started
        call.fails = self.fails
        if self.closed:
            self._fail(call, wire.Closed(call.what, "this client is closed"))
        elif len(self.out) > MAX_UNWRITTEN and call.verb not in ("UNLOCK", "RESUME"):
            self._fail(call, wire.Unavailable(call.what, "redlockd hangs: it does not read its input"))
        elif self._busy[call.room()] >= ROOM[call.room()]:
            call.state = QUEUED
            self._queues[call.room()].append(call)
        else:
            self._start(call)

    def begin_in_background(self, call: Call) -> None:
        """Starts a call that nobody waits for."""
        self.begin(call)
        if call.state == WAITING:
            call.state = ABANDONED

    def give_up(self, call: Call) -> Optional[float]:
        """Returns when the caller gives up, because the daemon hangs; None: never."""
        if call.request:
            return None if call.request.wait is None else call.started + call.request.wait + self.patience
        return call.started + self.patience

    def leave(self, call: Call, why: Optional[wire.Error] = None) -> None:
        """Abandons a call. With why, the caller still waits, and gets that error unless it was answered."""
        if why is None or call.state != DONE:
            self.abandon(call)
            if why is not None:
                call.error = why
                call.notify()

    def hangs(self, call: Call) -> wire.Error:
        """Returns the error of a caller that gave up."""
        if not self.link and self.fails > call.fails:
            return type(self.why)(call.what, self.why.text)
        return wire.Unavailable(call.what, f"redlockd at {self.path} does not answer: it hangs, or its nodes do (redlock status)")

    def _start(self, call: Call) -> None:
        self._busy[call.room()] += 1
        call.state = WAITING
        self._flight[call] = None
        if self.link:
            if not self._awaits_resume(call):
                self._send(call)
            return
        self._plan_failure(call)
        self.dial_at = min(self.dial_at, clock() + MIN_PAUSE)
        self.wake()

    def _awaits_resume(self, call: Call) -> bool:
        """Reports whether the daemon may not know the call's lease yet."""
        return call.lease is not None and call.lease._detached and call.verb in ("CHECK", "EXTEND", "BEAT")

    def _send(self, call: Call) -> None:
        tag = str(next(self._tag))
        call.resent = call.resent or call.sent_on != 0
        call.tags.append(tag)
        call.sent_on = self.link
        call.lines = []  # the whole answer will come again
        self._tags[tag] = call
        wait = ""
        if call.request and call.state == ABANDONED:
            wait = " wait=0"  # it only finds out what to release
        elif call.request and call.request.wait is not None:
            left = call.started + call.request.wait - clock()
            wait = f" wait={max(0, round(left * 1000))}"
        self.out += f"@{tag} {call.verb} {call.words}{wait}\n".encode()

    def _should_send(self, call: Call) -> bool:
        """Reports whether a new connection has to send the call."""
        if call.state == ABANDONED:
            return call.verb == "UNLOCK" or call.request is not None and call.request.hold == "pid" and call.sent_on != 0
        return call.verb != "RESUME" and not (call.once and call.sent_on)

    def _end(self, call: Call) -> None:
        """Ends the flight of a call."""
        abandoned = call.state == ABANDONED
        call.state = DONE
        if call in self._flight:
            del self._flight[call]
            self._busy[call.room()] -= 1
            queue = self._queues[call.room()]
            if queue:
                self._start(queue.popleft())
        if not abandoned:
            call.notify()

    def _fail(self, call: Call, error: wire.Error) -> None:
        call.error = error
        self._forget_tags(call, "")
        if call.verb == "UNLOCK" and call.lease and call.state != NEW and not self.closed:
            self._unlock_later(call.lease)
        elif call.verb == "CHECK" and call.lease:
            call.lease._checking = False
        self._end(call)

    def _forget_tags(self, call: Call, answered: str) -> None:
        for tag in call.tags:
            if tag == answered:
                self._tags.pop(tag, None)
            else:
                self._tags[tag] = STRAY_LOCK if call.request else STRAY
        call.tags = []

    def abandon(self, call: Call) -> None:
        """Ends a call whose caller has left. What it is granted is released."""
        if call.state == DONE:
            if call.lease and call.handle is not None and not call.handle._released:
                call.handle._released = True
                call.lease.count -= 1
                if call.lease.count <= 0 and call.lease.cause is None:
                    self.unlock_in_background(call.lease)
        elif call.state in (NEW, QUEUED):
            if call.state == QUEUED:
                self._queues[call.room()].remove(call)
            call.state = DONE
        elif call.state == WAITING:
            call.state = ABANDONED
            if call.request:
                self._cancel(call.tags)
            if not call.tags and not self._should_send(call):
                self._end(call)

    def _cancel(self, tags: List[str]) -> None:
        for tag in tags:
            self.out += f"CANCEL {tag}\n".encode()

    # --- connections

    def wants_connection(self) -> bool:
        """Reports whether a lease must be resumed, or a call waits."""
        if self.link or self.greeting or self.closed:
            return False
        return any(map(self._should_send, self._flight)) or any(lease._detached or lease._unwatched for lease in self.leases.values())

    def connected(self) -> None:
        """Is called when the driver has connected: greets the daemon."""
        self.links += 1
        self.greeting = True
        self._bye = False
        self._refused = None
        self._input = b""
        self._tags.clear()
        self.out[:] = b"@0 HELLO 1\n"
        self.greeted_at = clock()
        self._greeting_timer = self.at(clock() + GREETING_TIMEOUT, self._greeting_hangs)

    def _greeting_hangs(self) -> None:
        self.hang_up()
        self.ended(wire.Unavailable("", f"redlockd at {self.path} does not answer: it hangs"))

    def _greeted(self, parsed: wire.Parsed) -> None:
        if parsed.kind == "BACK":  # the answer may be lost, or may come twice
            self.hang_up()
            self.greeting = False
            self.cancel_timer(self._greeting_timer)
            self.dial_at = 0.0
        elif parsed.kind == "ERR" and not parsed.tag:
            self._refused = wire.refusal("", parsed.code, parsed.line)
        elif parsed.kind == "ERR":
            self.hang_up()
            self._refused = wire.refusal("", parsed.code, parsed.line)
            self.ended(self._refused)
        elif parsed.kind == "OK" and parsed.tag == "0":
            self._note_clock(wire.number(parsed.line, "clock") / 1000)
            self._use()
        elif parsed.kind == "BYE":
            self._bye = True

    def _note_clock(self, daemons: float) -> None:
        """Compares the clocks: they differ if the two processes are in different time namespaces. Unless
        one clock can have made the daemon's reading after HELLO was sent, the earliest deadlines count."""
        ahead = daemons + 0.001 - self.greeted_at  # daemons is in whole milliseconds
        is_same = -CLOCK_TOLERANCE <= ahead and daemons <= clock() + CLOCK_TOLERANCE
        self.ahead = 0.0 if is_same or not daemons else ahead

    def _use(self) -> None:
        """Makes a new connection the current one, and sends on it what is in flight."""
        self.cancel_timer(self._greeting_timer)
        self.greeting = False
        self.link = self.links
        self.connected_at = clock()
        if self.links > 1:
            self.tell(logging.INFO, "reconnected to redlockd at %s", self.path)
        for lease in list(self.leases.values()):
            if lease._detached or lease._unwatched:
                self._resume(lease)
        for call in list(self._flight):
            if call.sent_on != self.link and self._should_send(call) and not self._awaits_resume(call):
                self._send(call)
                if call.state == ABANDONED and call.request:
                    self._cancel(call.tags)

    def attempt_failed(self, error: wire.Error, final: bool = False) -> None:
        """Is called when the driver could not connect. final: another attempt would not help."""
        self.why = error
        self.fails += 1
        self.tries += 1
        most = min(MIN_PAUSE * 2 ** min(self.tries - 1, 10), MAX_PAUSE)
        self.dial_at = clock() + most * random.uniform(0.5, 1)
        if final:
            for call in list(self._flight):
                if call.state == WAITING:
                    self._fail(call, type(error)(call.what, error.text))
        self._fail_expired()

    def ended(self, error: wire.Error, here: bool = False) -> None:
        """Is called when the connection has ended. Leases that the daemon keeps until they are resumed
        go on. here: this side has ended it, so that the daemon releases them."""
        if self._refused:
            error = wire.Unavailable("", f"redlockd closed the connection: {self._refused.text}")
        elif self._bye:
            error = wire.Shutdown("", "redlockd is stopping, and no other one has started")
        if self.greeting:
            self.cancel_timer(self._greeting_timer)
            self.greeting = False
            refused = self._refused is not None and self._refused.code != "SHUTDOWN"
            self.attempt_failed(self._refused or error, final=refused)
            return
        if not self.link or self.closed:
            return
        now = clock()
        if self.leases or self._flight:
            self.tell(logging.INFO, "%s", error)
        self.link = 0
        self.out.clear()
        self._tags.clear()
        self.cancel_timer(self._bye_timer)
        self._bye_timer = None
        self.why = error
        self.lost_at = now
        short = now - self.connected_at < MAX_PAUSE
        self.tries = self.tries + 1 if short else 0
        self.dial_at = now + (min(MIN_PAUSE * 2 ** min(self.tries, 10), MAX_PAUSE) * random.uniform(0.5, 1) if self.tries > 1 else 0)
        for lease in list(self.leases.values()):
            if lease.cause is not None:
                continue
            if here and lease._hold == "conn":
                self._finish(lease, wire.Lost(self._what(lease), error.text))
            lease._detached = lease.cause is None and lease._hold == "conn"
            lease._unwatched = lease.cause is None and lease._hold == "pid"
        for call in list(self._flight):
            call.tags = []
            call.fails = self.fails
            if call.verb == "RESUME" or call.state == ABANDONED and not self._should_send(call):
                if call.verb == "CHECK" and call.lease:
                    call.lease._checking = False
                self._end(call)
                continue
            if call.once and call.sent_on:
                text = "the connection ended before the answer: ask who() whether it was done"
                self._fail(call, wire.Error(call.what, text, code="UNKNOWN"))
            elif here and call.state == WAITING:
                self._fail(call, wire.Unavailable(call.what, error.text))
            else:
                self._plan_failure(call)
        self._queues["RESUME"].clear()
        self.wake()

    def _plan_failure(self, call: Call) -> None:
        """Lets a call fail when it has waited long enough for a connection."""
        if call.state == ABANDONED and call.lease and call.lease._hold == "pid":
            call.until = None  # otherwise the lock would stay with the process
        if call.until is None:
            return
        if self.lost_at is not None:
            call.until = max(call.until, self.lost_at + self.patience)
        self.at(call.until, self._fail_expired)

    def _fail_expired(self) -> None:
        """Fails the calls that have waited long enough for a connection, and for one attempt."""
        if self.link:
            return
        now = clock()
        for call in list(self._flight):
            if call.until is not None and call.until <= now and self.fails > call.fails:
                self._fail(call, type(self.why)(call.what, self.why.text, self.why.fields, self.why.code))

    def data(self, received: bytes) -> None:
        """Handles what the driver has read."""
        lines = (self._input + received).split(b"\n")
        self._input = lines.pop()
        link, greeting = self.links, self.greeting
        try:
            for raw in lines:
                if raw:
                    self._line(wire.parse(raw))
                if link != self.links or not (self.link or self.greeting):
                    return  # this connection is no longer used
            if len(self._input) > wire.MAX_LINE:
                raise wire.ProtocolError("a line does not end")
        except wire.ProtocolError as error:
            text = f"the peer at {self.path} does not speak the protocol of redlockd ({error}): is it redlockd's socket?"
            self.hang_up()
            if greeting and self.greeting:
                self._refused = wire.Unavailable("", text)
            self.ended(wire.Unavailable("", text), here=True)

    def _line(self, parsed: wire.Parsed) -> None:
        if self.greeting:
            self._greeted(parsed)
        elif parsed.kind == "LOST":
            lease = self.leases.get(parsed.line.get("lease", ""))
            if lease:
                self._lost_by_daemon(lease, parsed.line)
        elif parsed.kind == "BYE":
            self._stopping()
        elif parsed.kind == "BACK":
            self._restarted()
        elif parsed.tag:
            self._answer(parsed)
        # else the answer to CANCEL, which says nothing, or an event of a later version

    def _answer(self, parsed: wire.Parsed) -> None:
        call = self._tags.get(parsed.tag)
        if isinstance(call, str):
            if parsed.kind != "-":
                del self._tags[parsed.tag]
                if call == STRAY_LOCK and parsed.kind == "OK":
                    self._release_stray(parsed.line)
            return
        if call is None:
            raise wire.ProtocolError(f"an answer without a request: tag {parsed.tag[:20]}")
        if parsed.kind == "-":
            call.lines.append(parsed.line)
            return
        if parsed.kind == "ERR" and self._sends_again(call, parsed):
            return
        tags = [tag for tag in call.tags if tag != parsed.tag]
        self._forget_tags(call, parsed.tag)
        if parsed.kind == "OK":
            call.reply = parsed.line
        else:
            call.error = wire.refusal(call.what, parsed.code, parsed.line)
            if call.request:
                self._cancel(tags)  # so that none of them goes on waiting
        self._settle(call, parsed.line)
        self._end(call)

    def _sends_again(self, call: Call, parsed: wire.Parsed) -> bool:
        """Reports whether the caller does not get a refusal, because the request will be sent again.
        SHUTDOWN with drain= is an answer: the daemon keeps the connection and extends its leases."""
        if parsed.code == "SHUTDOWN" and "drain" not in parsed.line and self._should_send(call) and call.shutdowns < MAX_SHUTDOWNS:
            call.shutdowns += 1
            self._drop_tag(call, parsed.tag)
            self._stopping()  # the next connection sends it
            return True
        if parsed.code == "LIMIT" and call.resent and call.limits < MAX_LIMITS and call.verb != "RESUME":
            call.limits += 1
            self._drop_tag(call, parsed.tag)
            link = self.link

            def again() -> None:
                if self.link == link and call.state in (WAITING, ABANDONED):
                    self._send(call)

            self.at(clock() + RESEND_PAUSE, again)
            return True
        return False

    def _drop_tag(self, call: Call, tag: str) -> None:
        call.tags.remove(tag)
        del self._tags[tag]

    def _stopping(self) -> None:
        """Is called when the daemon says that it stops, and bounds the wait for its end."""
        if not self._bye:
            self._bye = True

            def hang_up() -> None:
                self.hang_up()
                self.ended(self.why)

            self._bye_timer = self.at(clock() + BYE_TIMEOUT, hang_up)

    def _restarted(self) -> None:
        """Handles BACK: answers may be lost, or may still come."""
        self.restarts += 1
        for call in list(self._flight):
            if call.tags and not call.once:
                self._send(call)

    def _release_stray(self, line: Line) -> None:
        if line.get("lease") and line["lease"] not in self.leases:
            call = Call("UNLOCK", f"lease={line['lease']}")
            self.begin_in_background(call)

    # --- leases

    def _settle(self, call: Call, line: Line) -> None:
        """Handles the answer to a call."""
        if call.request:
            if call.reply is not None:
                self._granted(call, call.reply)
        elif call.lease is None:
            return
        elif call.verb == "UNLOCK":
            self._unlocked(call, call.lease)
        elif call.verb == "RESUME":
            self._resume_answered(call, call.lease, line)
        else:
            self._checked(call, call.lease, line)

    def _what(self, lease: State) -> str:
        return f'lease "{lease.name}"'

    def _granted(self, call: Call, reply: Line) -> None:
        if not reply.get("lease") or not reply.get("deadline") or call.request is None:
            raise wire.ProtocolError("a grant without its fields")
        lease = call.lease = State(self, call, call.request, reply)
        self.leases[lease.id] = lease
        now = clock()
        lease._extend(reply, now)
        if lease._max:
            lease._bound = now + lease._max * 0.99 - 0.02  # the daemon counts from before it asked the nodes
        if call.state == ABANDONED:
            self.unlock_in_background(lease)
        elif lease.end_at() <= now:
            call.error = self.expired(lease)
            self.unlock_in_background(lease)
        else:
            call.handle = self.new_handle(call)
            self._arm(lease, now)

    def enter_again(self, call: Call, lease: State) -> None:
        """Handles a LOCK of a lease that its holder has: it counts, and the daemon is not asked."""
        call.lease = lease
        if call.state != NEW:
            return  # the caller has left
        if lease.cause is not None:
            call.error = wire.again(lease.cause)
        else:
            call.handle = self.new_handle(call)
        self._end(call)

    def _arm(self, lease: State, now: float) -> None:
        """Sets the timer to half of the time that is left: it does not run while the host is suspended."""
        self._end_doubt(lease)
        self.cancel_timer(lease._timer)
        left = lease.end_at() - now
        lease._timer = self.at(now + (left / 2 if left / 2 >= MIN_CHECK else left), lambda: self._tick(lease))

    def _tick(self, lease: State) -> None:
        now = clock()
        if lease.cause is not None:
            if lease._unlock_due:
                self._begin_unlock(lease)
            return
        left = lease.end_at() - now
        if left <= 0:
            is_late = lease._timer is not None and now - lease._timer[0] > LATE
            if not (is_late and self._ask_again(lease, now)):
                self.expire(lease)
            return
        if left >= 2 * MIN_CHECK and lease._hold != "ttl" and self.link and not (lease._checking or lease._detached):
            lease._checking = True
            self.begin_in_background(self.about("CHECK", lease))
        self._arm(lease, now)

    def _ask_again(self, lease: State, now: float) -> bool:
        """Asks whether a lease is still held whose end this process noticed late: the daemon may have
        extended it all the time. Until the answer it is in doubt. It returns False if that is no use."""
        if lease._doubt is not None or lease._hold == "ttl" or not self.link:
            return False
        lease._doubt = self.about("CHECK", lease)
        self.begin_in_background(lease._doubt)
        self.cancel_timer(lease._timer)
        left = lease._deadline - now
        lease._timer = self.at(now + (left / 2 if left > 0 else LATE_ANSWER), lambda: self._tick(lease))
        return True

    def _end_doubt(self, lease: State) -> None:
        lease._doubt = None
        doubters, lease._doubters = lease._doubters, []
        for notify in doubters:
            notify()

    def settle(self, lease: State, notify: Callable[[], None]) -> None:
        """Calls notify as soon as it is known whether the lease is held. Due timers have run."""
        if lease._doubt is not None:
            lease._doubters.append(notify)
            return
        if lease.cause is None and lease.end_at() <= clock():
            self.expire(lease)
        notify()

    def expired(self, lease: State) -> wire.Error:
        """Returns the cause of a lease that ended without a report of the daemon."""
        ms = round(lease._guard * 1000)
        if lease._hold == "ttl":
            text = f"lost: its ttl ends in less than the guard of {ms} ms, and extend() was not called"
        elif lease._bound and lease._deadline >= lease._bound:
            text = f"lost: its maximum holding time ends in less than the guard of {ms} ms"
        elif not self.link:
            text = f"lost: not confirmed {ms} ms before its deadline: there is no connection: {self.why.text}"
        else:
            text = f"lost: not confirmed {ms} ms before its deadline: this process was stopped, or redlockd hangs or could not extend it"
        return wire.Lost(self._what(lease), text)

    def expire(self, lease: State) -> None:
        """Ends a lease that the daemon has not reported as lost. The daemon may still extend it. It is
        unlocked at the deadline, and not before, because its holder may still be stopping."""
        if lease.cause is None:
            due = lease._maybe_kept or not lease._detached
            self._finish(lease, self.expired(lease), forget=not due)
            if due:
                self._unlock_at(lease, lease._deadline)

    def _finish(self, lease: State, cause: wire.Error, forget: bool = True) -> None:
        """Ends a lease. Only the first call counts."""
        if forget and self.leases.get(lease.id) is lease:
            del self.leases[lease.id]
        if forget or lease.cause is None:
            self.cancel_timer(lease._timer)
            lease._unlock_due = False
        if lease.cause is not None:
            return
        lease.cause = cause
        self._end_doubt(lease)
        detached, lease._detached, lease._unwatched = lease._detached, False, False
        if detached:
            for call in list(self._flight):
                if call.lease is lease and call.verb in ("CHECK", "EXTEND", "BEAT") and not call.tags:
                    self._fail(call, cause)
        if isinstance(cause, Released):
            return
        if not self.closed:
            self.tell(logging.WARNING, "%s", cause)
        for ref in lease.handles:
            handle = ref()
            if handle is not None and not handle._released:
                handle._lost()

    def _lost_by_daemon(self, lease: State, line: Line) -> None:
        reason = line.get("reason", "")
        forced = reason == "forced" and len(lease.names) > 1
        cause = wire.Lost(self._what(lease), line.text or f"lost: reason={reason}", line)
        self._finish(lease, cause, forget=not forced)
        if forced and not lease._unlocking:  # the daemon keeps its other names until the holder has stopped
            self._unlock_at(lease, lease._deadline)

    def _unlock_at(self, lease: State, when: float) -> None:
        lease._unlock_due = True
        self.cancel_timer(lease._timer)
        lease._timer = self.at(when, lambda: self._tick(lease))

    def _unlock_later(self, lease: State) -> None:
        """Unlocks again after a failure, unless the lease expires by itself."""
        if lease._hold == "pid" or self.link:
            self._unlock_at(lease, clock() + RETRY_UNLOCK)
        else:
            self._finish(lease, lease.cause or self.expired(lease))

    def release(self, call: Call, handle: Handle) -> None:
        """Begins an UNLOCK for a handle. It fails if there is nothing to unlock."""
        lease = handle._state
        if handle._released:
            self._fail(call, wire.NotHeld(f'unlock "{lease.name}"', "not held: it is already released"))
            return
        handle._released = lease.cause is None
        lease.count -= 1
        if lease.cause is not None:
            if lease.count <= 0:
                if lease._unlock_due:  # the holder has stopped, so do not wait for the deadline
                    self._begin_unlock(lease)
                lease._unlocking = True
            self._fail(call, wire.again(lease.cause))
        elif lease.count > 0:
            self._end(call)
        else:
            lease._unlocking = True
            self._finish(lease, Released(self._what(lease), "released"), forget=False)
            self.begin(call)

    def _begin_unlock(self, lease: State) -> None:
        lease._unlock_due = False
        lease._unlocking = True
        self.begin_in_background(self.about("UNLOCK", lease))

    def unlock_in_background(self, lease: State) -> None:
        """Unlocks a lease that nobody uses."""
        self._finish(lease, Released(self._what(lease), "released"), forget=False)
        self._begin_unlock(lease)

    def _unlocked(self, call: Call, lease: State) -> None:
        error = call.error
        if error is None or error.code == "NOTHELD" and call.resent:
            call.error = None  # an earlier UNLOCK released it
        elif error.code == "NOTHELD":
            call.error = wire.Lost(call.what, f"lost: redlockd no longer knows it ({error.text})", error.fields)
        elif error.code != "LOST":
            lease._unlocking = False
            self._unlock_at(lease, clock() + RETRY_UNLOCK)
            return
        self._finish(lease, lease.cause or self.expired(lease))

    def _checked(self, call: Call, lease: State, line: Line) -> None:
        """Handles the answer to CHECK, EXTEND or BEAT."""
        error = call.error
        lease._checking = False
        if lease.cause is not None:
            call.error = lease.cause
        elif error is None:
            if call.verb == "EXTEND" and line.get("ttl") and " ttl=" in call.words:
                lease._ttl = lease._longest = 0.0
            now = clock()
            lease._extend(line, now)
            if lease.end_at() > now:
                self._arm(lease, now)
            elif lease._doubt is None and call.state == ABANDONED and self._ask_again(lease, now):
                pass  # the answer has waited to be read
            elif lease._doubt in (None, call):
                self.expire(lease)
                call.error = lease.cause
        elif error.code == "LOST":
            self._lost_by_daemon(lease, line)
            call.error = lease.cause
        elif error.code == "NOTHELD":
            self._finish(lease, wire.Lost(self._what(lease), f"lost: redlockd no longer knows it ({error.text})", error.fields))
            call.error = lease.cause

    def _resume(self, lease: State) -> None:
        call = Call("RESUME", f"{lease._words} lease={lease.id}", lease)
        if lease._owner:
            call.words += f" owner={lease._owner}"
        call.what = f'resume "{lease.name}"'
        self.begin_in_background(call)

    def _resume_answered(self, call: Call, lease: State, line: Line) -> None:
        error = call.error
        if error is None:
            self._resume_granted(lease, line)
        elif lease._hold == "pid" and error.code not in ("LIMIT", "NOTHELD", "LOST"):
            lease._unwatched = False  # after NOQUORUM the daemon reports a loss
        elif error.code in ("NOTHELD", "LOST", "VERB"):
            text = f"lost: the connection ended, and a new one could not resume it ({error.text})"
            self._finish(lease, wire.Lost(self._what(lease), text, error.fields))
        else:
            lease._maybe_kept = True
            if lease.cause is not None:
                self._unlock_ended(lease)
                return
            link = self.link

            def again() -> None:
                if self.link == link and (lease._detached or lease._unwatched):
                    self._resume(lease)

            self.at(clock() + RETRY_RESUME, again)

    def _resume_granted(self, lease: State, line: Line) -> None:
        if lease.cause is not None:
            if lease._hold == "conn":
                self._unlock_ended(lease)
            return
        if lease._detached or lease._unwatched:
            self.resumed += 1
            self.tell(logging.INFO, "lease %r continues over the new connection", lease.name)
        lease._detached = lease._unwatched = False
        lease._extend(line, clock())
        self._arm(lease, clock())
        for call in list(self._flight):
            if call.lease is lease and not call.tags and call.verb != "RESUME" and self._should_send(call):
                self._send(call)

    def _unlock_ended(self, lease: State) -> None:
        """Unlocks a lease that has ended here but that the daemon keeps: at the deadline that the
        holder knew, because the holder may still be stopping, or at once if it has stopped."""
        self._unlock_at(lease, 0.0 if lease._unlocking or isinstance(lease.cause, Released) else lease._deadline)

    # --- the end

    def close_calls(self) -> None:
        """Begins to close: a call that waits may be granted a lock that would stay, so it is cancelled."""
        for call in list(self._flight):
            if call.state == WAITING and call.request and call.request.outlasts:
                call.error = wire.Closed(call.what, "this client is closed")
                call.notify()
                self.abandon(call)

    def is_releasing(self) -> bool:
        """Reports whether a release is in flight whose lock would stay if the connection ended now."""

        def outlasts(call: Call) -> bool:
            if call.request:
                return call.request.outlasts
            return call.verb == "UNLOCK" and (call.lease is None or call.lease._hold != "conn")

        return self.link != 0 and any(call.state == ABANDONED and outlasts(call) for call in self._flight)

    def close(self, why: str = "this client is closed") -> None:
        """Ends all leases and calls, and then the connection, at which the daemon releases the locks."""
        if self.closed:
            return
        self.closed = True
        for lease in list(self.leases.values()):
            self._finish(lease, wire.Lost(self._what(lease), f"lost: {why}"))
        for queue in self._queues.values():
            while queue:
                self._fail(queue.popleft(), wire.Closed("", why))
        for call in list(self._flight):
            self._fail(call, wire.Closed(call.what, why))
        self._timers.clear()
        self.out.clear()
        self.hang_up()
