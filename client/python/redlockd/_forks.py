"""What happens to clients in the child after a fork.

The leases stay with the parent, and so does the connection: the child closes its copy, which would
keep the locks after the parent's end.
"""

import os
import socket
import threading
import weakref
from typing import Any, Optional

from . import _core, _wire

NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)

lock = threading.Lock()  # is held while a socket is made, and during a fork
clients: "weakref.WeakSet[Any]" = weakref.WeakSet()


def leave(core: _core.Core, sock: Optional[socket.socket]) -> None:
    """Ends the child's part in the leases and the connection of its parent."""
    for lease in core.leases.values():
        text = "this process was forked from the one that holds it: take a lock of its own"
        lease.forked = True
        lease.cause = _wire.Lost(f'lease "{lease.name}"', text)
        for ref in lease.handles:
            handle = ref()
            if handle is not None:
                handle._forked()
    if sock:
        os.close(sock.detach())


def _in_child() -> None:
    for client in list(clients):
        client._forked()
    lock.release()


os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=_in_child)
