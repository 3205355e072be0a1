"""Tests of redlockd.testing. They need no redlockd."""

import os
import threading
import unittest

import redlockd
from redlockd.testing import Daemon


class Testing(unittest.TestCase):
    def setUp(self) -> None:
        before = os.environ.get("REDLOCK_SOCKET")
        self.daemon = Daemon()
        self.daemon.__enter__()
        self.c = redlockd.Client()

        def end() -> None:
            self.c.close()
            self.daemon.__exit__()
            self.assertEqual(os.environ.get("REDLOCK_SOCKET"), before)

        self.addCleanup(end)

    def test_excludes_and_waits(self) -> None:
        with self.c.lock("a", "b", note="x y") as lease:
            self.assertEqual(self.daemon.held(), ["a", "b"])
            with self.assertRaisesRegex(redlockd.Held, "held by another client of the test"):
                self.c.lock("b", wait=0).acquire()
            self.assertEqual([line["note"] for line in self.c.list()], ["x y"])
            timer = threading.Timer(0.05, lease.release)
            timer.start()
            with redlockd.Client() as other, other.lock("a") as next_:
                self.assertGreater(next_.fence, lease.fence)
            timer.join()
        self.assertEqual(self.daemon.held(), [])
        with self.c.lock("a", mode="shared"), self.c.lock("a", mode="shared", wait=0):
            self.assertIsNone(self.c.lock("a", wait=0).try_acquire())
        with self.c.lock("s", slots=2) as one, self.c.lock("s", slots=2) as two:
            self.assertEqual((one.slot, two.slot), (1, 2))
            self.assertIsNone(self.c.lock("s", slots=2, wait=0.01).try_acquire())

    def test_end_of_a_client_releases(self) -> None:
        with redlockd.Client() as other:
            lease = other.lock("a").acquire()
        self.assertTrue(lease.lost.is_set())
        self.c.lock("a").acquire().release()

    def test_loses(self) -> None:
        with self.assertRaisesRegex(redlockd.Lost, "quorum"), self.c.lock("a") as lease:
            self.assertEqual(self.daemon.lose("a"), 1)
            self.assertTrue(lease.lost.wait(20))
        with self.assertRaises(redlockd.Lost), self.c.lock("a", max=0.2) as lease:
            self.assertTrue(lease.lost.wait(20))
        lease = self.c.lock("a", hold="ttl", ttl=0.2).acquire()
        self.assertTrue(lease.lost.wait(20))
        with self.assertRaises(redlockd.Lost):
            lease.release()

    def test_refuses(self) -> None:
        self.daemon.refuse("NOQUORUM", name="a")
        with self.assertRaisesRegex(redlockd.NoQuorum, "refused by the test"):
            self.c.lock("a").acquire()
        self.c.lock("b").acquire().release()
        self.daemon.refuse("DENIED", "not you")
        with self.assertRaisesRegex(redlockd.Denied, "not you"):
            self.c.lock("b").acquire()
        self.daemon.allow()
        self.c.lock("a").acquire().release()

    def test_restarts(self) -> None:
        with self.c.lock("a") as lease:
            self.daemon.restart()
            self.assertIsNone(self.c.lock("a", wait=0).try_acquire())
            lease.check()
            self.assertEqual((self.c.reconnects, self.c.resumed), (1, 1))
        self.assertEqual(self.daemon.held(), [])


if __name__ == "__main__":
    unittest.main()
