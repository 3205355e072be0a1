"""The fixture redlock_daemon, for a conftest.py with pytest_plugins = ["redlockd.pytest_plugin"].

    def test_backup_stops_at_a_loss(redlock_daemon):
        …
        redlock_daemon.lose("nightly-backup")
"""

import importlib
from typing import Any, Iterator

from .testing import Daemon

pytest: Any = importlib.import_module("pytest")


@pytest.fixture  # type: ignore[misc]
def redlock_daemon() -> Iterator[Daemon]:
    """A redlockd.testing.Daemon, whose socket is $REDLOCK_SOCKET."""
    with Daemon() as daemon:
        yield daemon
