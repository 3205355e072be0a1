"""Lines of the protocol, options, and errors. It does no I/O."""

import copy
import copyreg
import datetime
import errno
import math
import os
import re
import stat
import time
import urllib.parse
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Sequence, Tuple, Type, Union

DEFAULT_SOCKET = "/run/redlockd/redlockd.sock"
MAX_LINE = 1 << 16  # the daemon's lines have at most 4,096 bytes
MAX_SOCKET_PATH = 107  # bytes

Seconds = Union[int, float, datetime.timedelta]
Mode = Literal["exclusive", "shared"]
Hold = Literal["conn", "ttl", "pid"]

HAS_BOOTTIME = hasattr(time, "CLOCK_BOOTTIME")

if HAS_BOOTTIME:

    def clock() -> float:
        """Returns the time since the boot of this host, in seconds. A suspension of the host counts."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    clock = time.monotonic  # runs during a suspension on macOS


class Line(Dict[str, str]):
    """The fields of a line of an answer, as PROTOCOL describes them. Durations are in milliseconds."""

    text = ""  # for people


class Error(Exception):
    """An error of redlockd. str() says what happened, to which lock, and what to do."""

    code = ""  # of the protocol

    def __init__(self, what: str, text: str, fields: Optional[Line] = None, code: str = ""):
        super().__init__(f"{what}: {text}" if what else text)
        self.text = text
        self.fields = fields if fields is not None else Line()
        self.code = code or self.code

    def __reduce__(self) -> Any:  # BaseException's calls __init__ with args
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class Held(Error):
    """Another client held the lock for all of wait. fields has host, pid and user if they are known, and blocked:
    which one of several names is held."""

    code = "HELD"


class Already(Held):
    """The process of hold="pid" already holds the lock or waits for it."""

    code = "ALREADY"


class NoQuorum(Error):
    """Too few nodes could vote. This does not tell whether the lock is held."""

    code = "NOQUORUM"


class Lost(Error):
    """The lease ended without a release. From its deadline on, others can hold the lock."""

    code = "LOST"


class NotHeld(Error):
    """The lease was already released."""

    code = "NOTHELD"


class Deadlock(Error):
    """Waiting would have closed a cycle of waiters on this host."""

    code = "DEADLOCK"


class Cancelled(Error):
    """The process that was to hold the lock (pid=) ended during the wait."""

    code = "CANCELLED"


class Denied(Error):
    """This user lacks the permission."""

    code = "DENIED"


class Limit(Error):
    """A limit of the daemon's config is reached."""

    code = "LIMIT"


class Invalid(Error, ValueError):
    """A name or an option is not valid."""

    code = "OPTION"


class Unavailable(Error):
    """There is no daemon, and none came while the call waited, or it hangs."""


class Shutdown(Unavailable):
    """The daemon is stopping, and no other one has started."""

    code = "SHUTDOWN"


class Internal(Error):
    """A defect of the daemon. See its log."""

    code = "INTERNAL"


class Closed(Error):
    """close() was called on this client."""


for _kind in (Error, Held, Already, NoQuorum, Lost, NotHeld, Deadlock, Cancelled, Denied, Limit, Invalid, Unavailable, Shutdown, Internal, Closed):
    _kind.__module__ = "redlockd"  # where programs find it

ERRORS: Dict[str, Type[Error]] = {
    kind.code: kind
    for kind in (Held, Already, NoQuorum, Lost, NotHeld, Deadlock, Cancelled, Denied, Limit, Shutdown, Internal)
}
ERRORS.update(dict.fromkeys(("SYNTAX", "VERB", "NAME", "OPTION", "TOOLONG"), Invalid))


class ProtocolError(Exception):
    """The other side does not speak the protocol."""


class Parsed(NamedTuple):
    """A line from the daemon."""

    tag: str
    kind: str  # OK, ERR, - or an event
    code: str  # of ERR
    line: Line


def parse(raw: bytes) -> Parsed:
    """Reads a line without its LF. Unknown fields and events are kept."""
    try:
        whole = raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"a line is not UTF-8: {raw[:80]!r}") from None
    head, _, text = whole.rstrip("\r").partition(" : ")
    words = [word for word in head.split(" ") if word]  # other white space of Unicode belongs to a value
    tag = words.pop(0)[1:] if head.startswith("@") else ""
    kind = words.pop(0) if words else ""
    code = words.pop(0) if kind == "ERR" and words else ""
    if not (kind in ("OK", "-") or code or (not tag and kind.isascii() and kind.isalpha() and kind.isupper() and kind != "ERR")):
        raise ProtocolError(f"{whole[:80]!r} is neither OK, ERR, - nor an event")
    if ":" in words:  # an empty text
        del words[words.index(":") :]
    fields = Line()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ProtocolError(f"{word[:80]!r} is not key=value")
        fields[key] = urllib.parse.unquote(value) if "%" in value else value
    fields.text = text
    return Parsed(tag, kind, code, fields)


def refusal(what: str, code: str, line: Line) -> Error:
    """Returns the error of an ERR."""
    kind = ERRORS.get(code, Error)
    text = line.text or (kind.__doc__ or "").partition("\n")[0]
    return kind(what, text if code in text or kind in (Held, Lost) else f"{code}: {text}", line, code)


def again(error: Error) -> Error:
    """Returns a copy to raise, because several threads may raise the same error."""
    return copy.copy(error)


def number(line: Line, key: str) -> int:
    """Returns a field, or 0 if it is missing or not a number."""
    value = line.get(key, "")
    return int(value) if value.lstrip("-").isdecimal() else 0


def escape(text: str) -> str:
    """Writes spaces, control characters, "=", ",", and "%" as %XX."""
    return re.sub("[\0- =,%\x7f-\x9f]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), text)


def text_bytes(what: str, value: Any) -> bytes:
    """Returns a text as UTF-8."""
    if isinstance(value, bytes):
        raise TypeError(f"{what} is bytes: pass a str, such as {what}.decode()")
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}: pass a str")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Invalid("", f"{what} {value!r} is not UTF-8: it has lone surrogates (a file name? use os.fsencode(...).hex())", code="NAME") from None


def check_names(names: Sequence[str]) -> str:
    """Returns the names as a request has them."""
    if not 1 <= len(names) <= 100:
        raise Invalid("", f"{len(names)} names: 1 to 100 can be locked together, as lock('a', 'b')", code="NAME")
    for name in names:
        size = len(text_bytes("name", name))
        if not 1 <= size <= 200:
            raise Invalid("", f"the name {name[:50]!r} has {size} bytes: 1 to 200 are allowed", code="NAME")
    joined = ",".join(map(escape, names))
    if len(joined.encode()) > 3000:
        raise Invalid("", f"the names have {len(joined.encode())} bytes together: at most 3000", code="NAME")
    return joined


def milliseconds(option: str, value: Seconds) -> int:
    """Returns a duration that was given in seconds, rounded up."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option}={value!r}: pass seconds, such as {option}=5 or {option}=0.25, or a timedelta")
    if not 0 <= value <= 1e9:
        hint = "None waits without a bound" if option == "wait" else "leave it out for the daemon's default"
        raise Invalid("", f"{option}={value!r}: pass seconds from 0 to 1e9 ({hint})")
    return math.ceil(round(value * 1000, 6))


def choice(option: str, value: Any, choices: Sequence[str]) -> str:
    """Returns a word that must be one of the choices."""
    if value not in choices:
        raise Invalid("", f"{option}={value!r}: pass one of {', '.join(map(repr, choices))}")
    return f"{option}={value}"


def whole(option: str, value: Any, most: int) -> str:
    """Returns an option that is a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option}={value!r}: pass a whole number")
    if not 1 <= value <= most:
        raise Invalid("", f"{option}={value}: pass 1 to {most}")
    return f"{option}={value}"


class Request:
    """The names and options of LOCK."""

    def __init__(
        self,
        names: Sequence[str],
        wait: Optional[Seconds],
        mode: str,
        hold: str,
        slots: Optional[int],
        pid: Optional[int],
        note: Optional[str],
        durations: Dict[str, Optional[Seconds]],
    ):
        self.names = tuple(names)
        self.words = check_names(names)
        self.mode = mode
        self.slots = slots
        self.wait = None if wait is None else milliseconds("wait", wait) / 1000
        self.hold = hold
        self.release_wait: Optional[float] = None
        self.guard = self.ttl = self.max = 0.0
        options: List[str] = []
        if choice("mode", mode, ("exclusive", "shared")) != "mode=exclusive":
            options.append("mode=shared")
        if choice("hold", hold, ("conn", "ttl", "pid")) != "hold=conn":
            options.append("hold=" + hold)
        if slots is not None:
            options.append(whole("slots", slots, 1000))
        if pid is not None:
            if hold != "pid":
                raise Invalid("", f"pid={pid}: it needs hold='pid'")
            options.append(whole("pid", pid, 1 << 31))
        for option, value in durations.items():
            if value is not None:
                options.append(f"{option}={milliseconds(option, value)}")
        if note is not None:
            if len(text_bytes("note", note)) > 200:
                raise Invalid("", f"the note has {len(note.encode())} bytes: at most 200")
            options.append("note=" + escape(note))
        for option in ("guard", "ttl", "max"):
            given = durations.get(option)
            if given is not None:
                setattr(self, option, milliseconds(option, given) / 1000)
        self.outlasts = hold != "conn" or bool(durations.get("linger"))  # a grant stays when the connection ends
        self.options = "".join(" " + option for option in options)


def socket_path(path: Optional[str]) -> str:
    """Returns the path of the socket: as given, $REDLOCK_SOCKET, or the default."""
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path={path!r}: pass the path of redlockd's socket as a str")
    path = os.fspath(path) if path else os.environ.get("REDLOCK_SOCKET") or DEFAULT_SOCKET
    if "://" in path:
        raise Invalid("", f"{path} is a URL: redlockd listens on a Unix socket of this host, give the path of the socket")
    return path


def dial_error(path: str, error: OSError) -> Tuple[Error, bool]:
    """Returns the error of a failed connect, and whether another attempt would fail the same way."""
    where, why = f"redlockd's socket {path}", error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Denied("", f"not allowed to open {where}: this user is not in the group of the socket ({why})"), True
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        return Invalid("", f"{where} has {len(os.fsencode(path))} bytes: a path of a socket has at most {MAX_SOCKET_PATH}"), True
    with_mode = None
    try:
        with_mode = os.stat(path).st_mode
    except OSError:
        pass
    if with_mode is not None and not stat.S_ISSOCK(with_mode):
        return Invalid("", f"{path} is not a socket: set path= or REDLOCK_SOCKET to that of redlockd ({DEFAULT_SOCKET})"), True
    if error.errno == errno.EPROTOTYPE:
        return Invalid("", f"{path} is not a stream socket: set path= or REDLOCK_SOCKET to that of redlockd"), True
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
        return Unavailable("", f"nobody listens on {where}: is redlockd running? ({why})"), False
    if error.errno == errno.EAGAIN:
        return Unavailable("", f"{where} takes no more connections: redlockd hangs, or is busy"), False
    return Unavailable("", f"{where}: {why}"), False
