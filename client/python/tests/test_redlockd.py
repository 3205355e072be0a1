"""Tests with a real redlockd -dev, whose socket is $REDLOCK_SOCKET."""

import asyncio
import contextlib
import copy
import datetime
import gc
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, List

import redlockd

ROUNDS = int(os.environ.get("REDLOCKD_ROUNDS", "500"))


class WithClient(unittest.TestCase):
    def setUp(self) -> None:
        self.name = self.id().rpartition(".")[2]
        self.c = redlockd.Client()
        self.addCleanup(self.c.close)

    def assertFree(self) -> None:
        """Another client gets the lock at once, after the release that may be in progress."""
        with redlockd.Client() as other:
            other.lock(self.name, wait=5).acquire().release()

    def assertHeld(self) -> None:
        with redlockd.Client() as other, self.assertRaises(redlockd.Held):
            other.lock(self.name, wait=0).acquire()


class Locks(WithClient):
    def test_block(self) -> None:
        with self.c.lock(self.name, wait=5) as lease:
            self.assertGreater(lease.fence, 0)
            self.assertEqual(lease.name, self.name)
            self.assertFalse(lease.lost.is_set())
            self.assertGreater(lease.remaining(), 1)
            lease.check()
            with self.assertRaisesRegex(redlockd.Held, f'lock "{self.name}".*held by') as held:
                self.c.lock(self.name, wait=0).acquire()
            self.assertEqual(held.exception.fields["pid"], str(os.getpid()))
        self.assertFree()
        self.assertEqual(lease.remaining(), 0)
        with self.assertRaises(redlockd.NotHeld):
            lease.release()
        with self.assertRaises(redlockd.NotHeld):
            lease.check()

    def test_released_in_block(self) -> None:
        with self.c.lock(self.name) as lease:
            lease.release()
            self.assertFree()

    def test_options(self) -> None:
        with self.c.lock(self.name, "other", ttl=datetime.timedelta(seconds=3), note="a b", guard=0.5, max=60, linger=0) as lease:
            self.assertEqual(lease.names, (self.name, "other"))
            self.assertLessEqual(lease.remaining(), 3)
            notes = [line.get("note") for line in self.c.list()]
            self.assertIn("a b", notes)
        with self.c.lock(self.name, mode="shared"), self.c.lock(self.name, mode="shared", wait=0):
            pass
        with self.c.lock("slots", slots=2, wait=0) as one, self.c.lock("slots", slots=2, wait=0) as two:
            self.assertEqual({one.slot, two.slot}, {1, 2})
            with self.assertRaises(redlockd.Held):
                self.c.lock("slots", slots=2, wait=0).acquire()
        with self.c.lock(self.name, hold="pid", wait=0), self.assertRaises(redlockd.Already):
            self.c.lock(self.name, hold="pid", wait=0).acquire()
        with self.c.lock(self.name, hold="ttl", ttl=5) as lease:
            lease.extend(9)
            self.assertGreater(lease.remaining(), 6)
        with self.c.lock(self.name, beat=30) as lease:
            lease.beat()
            lease.downgrade()
            with self.c.lock(self.name, mode="shared", wait=0):
                pass

    def test_min_outlasts_release(self) -> None:
        self.c.lock(self.name, min=30).acquire().release()
        self.assertHeld()

    def test_questions(self) -> None:
        with self.c.lock(self.name):
            (holder,) = self.c.who(self.name)
            self.assertEqual((holder["lock"], holder["pid"]), (self.name, str(os.getpid())))
            self.assertIn(self.name, [line["lock"] for line in self.c.list()])
            status, nodes = self.c.status()
            self.assertEqual((status["quorum"], len(nodes)), ("3", 5))
            self.assertIn("locks work", status.text)

    def test_decorator(self) -> None:
        lock = self.c.lock(self.name, wait=5)

        @lock
        def work(n: int) -> int:
            self.assertHeld()
            return n + 1

        self.assertEqual(work(1), 2)
        self.assertEqual(work(2), 3)
        self.assertFree()

    def test_loss(self) -> None:
        told = threading.Event()
        began = time.monotonic()
        with self.assertRaisesRegex(redlockd.Lost, "holding time"):
            with self.c.lock(self.name, max=0.3, on_lost=lambda lease: told.set()) as lease:
                self.assertTrue(lease.lost.wait(20))
                with self.assertRaises(redlockd.Lost):
                    lease.check()
        self.assertTrue(told.wait(20))
        self.assertGreater(time.monotonic() - began, 0.1)

    def test_exception_of_the_block_counts(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.c.lock(self.name, max=0.2) as lease:
                lease.lost.wait(20)
                1 / 0
        with self.assertRaises(ZeroDivisionError):
            with self.c.lock(self.name):
                1 / 0
        self.assertFree()

    def test_close(self) -> None:
        lease = self.c.lock(self.name).acquire()
        errors: List[BaseException] = []

        def wait() -> None:
            try:
                self.c.lock(self.name).acquire()
            except redlockd.Error as error:
                errors.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        with redlockd.Client() as other:
            while not any(line["state"] == "waiting" and line["lock"] == self.name for line in other.list()):
                pass
        self.c.close()
        waiter.join()
        self.assertIsInstance(errors[0], redlockd.Closed)
        self.assertTrue(lease.lost.is_set())
        self.assertFree()
        with self.assertRaises(redlockd.Closed):
            self.c.lock(self.name).acquire()

    def test_interrupted_wait(self) -> None:
        with self.c.lock(self.name):
            waiting = subprocess.Popen(
                [sys.executable, "-c", "import redlockd, sys; redlockd.Client().lock(sys.argv[1]).acquire()", self.name],
                stderr=subprocess.PIPE,
            )
            while not any(line["state"] == "waiting" and line["lock"] == self.name for line in self.c.list()):
                pass
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate()
            self.assertIn(b"KeyboardInterrupt", said)
        self.assertFree()

    def test_interrupted_before_it_blocks(self) -> None:
        """A signal in another thread does not wake the main thread, as one that comes too early."""
        interrupted = threading.Event()

        def interrupt() -> None:
            while not any(line["state"] == "waiting" and line["lock"] == self.name for line in self.c.list()):
                pass
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            if not interrupted.wait(20):
                held.release()

        with self.c.lock(self.name) as held:
            other = threading.Thread(target=interrupt)
            other.start()
            with self.assertRaises(KeyboardInterrupt):
                self.c.lock(self.name).acquire()
            interrupted.set()
            other.join()
            held.check()
        self.assertFree()


class BadInput(WithClient):
    def test_names_and_options(self) -> None:
        lock: Any = self.c.lock
        for error, hint, arguments, options in [
            (TypeError, "decode", (b"job",), {}),
            (TypeError, "pass a str", (5,), {}),
            (redlockd.Invalid, "not UTF-8", ("\udc80",), {}),
            (redlockd.Invalid, "1 to 200", ("",), {}),
            (redlockd.Invalid, "1 to 200", ("é" * 101,), {}),
            (redlockd.Invalid, "1 to 100", (), {}),
            (redlockd.Invalid, "3000", ["%" * 199 + str(i) for i in range(9)], {}),
            (TypeError, "wait=5 or wait=0.25", ("job",), {"wait": "5s"}),
            (TypeError, "seconds", ("job",), {"wait": True}),
            (ValueError, "None waits without a bound", ("job",), {"wait": -1}),
            (ValueError, "seconds", ("job",), {"wait": float("nan")}),
            (ValueError, "daemon's default", ("job",), {"ttl": float("inf")}),
            (ValueError, "'exclusive', 'shared'", ("job",), {"mode": "read"}),
            (ValueError, "'conn', 'ttl', 'pid'", ("job",), {"hold": "forever"}),
            (ValueError, "hold='pid'", ("job",), {"pid": 5}),
            (TypeError, "whole number", ("job",), {"slots": 1.5}),
            (ValueError, "1 to 1000", ("job",), {"slots": 0}),
            (ValueError, "at most 200", ("job",), {"note": "x" * 201}),
            (TypeError, "retain", ("job",), {"retain": 1}),
        ]:
            with self.subTest(arguments=arguments, options=options), self.assertRaisesRegex(error, hint):
                lock(*arguments, **options)

    def test_refused_by_daemon(self) -> None:
        for name, options in [("a\nb", {}), ("redlockd:x", {}), ("job", {"ttl": 0.01}), ("job", {"min": 1, "hold": "ttl"})]:
            lock: Any = self.c.lock(name, **options)  # type: ignore[arg-type]
            with self.subTest(name=name, options=options), self.assertRaises(redlockd.Invalid):
                lock.acquire()

    def test_sockets(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "text")
            open(text, "w").close()
            datagram = os.path.join(folder, "datagram")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
                other.bind(datagram)
                for path, error, hint in [
                    (text, redlockd.Invalid, "not a socket: set path= or REDLOCK_SOCKET"),
                    (folder, redlockd.Invalid, "not a socket"),
                    (datagram, redlockd.Invalid, "not a stream socket"),
                    ("x" * 200, redlockd.Invalid, "at most 107"),
                    (os.path.join(folder, "none"), redlockd.Unavailable, "is redlockd running"),
                ]:
                    with self.subTest(path=path), redlockd.Client(path) as c, self.assertRaisesRegex(error, hint):
                        c.lock("job", wait=0.05).acquire()
        with self.assertRaisesRegex(redlockd.Invalid, "a URL"):
            redlockd.Client("redis://localhost:6379")
        with self.assertRaises(TypeError):
            redlockd.Client(5)  # type: ignore[arg-type]

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_permission(self) -> None:
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            os.chmod(folder, 0o755)
            server.bind(os.path.join(folder, "s"))
            server.listen()
            os.chmod(server.getsockname(), 0o600)
            os.seteuid(65534)
            try:
                with redlockd.Client(server.getsockname()) as c, self.assertRaisesRegex(redlockd.Denied, "group of the socket"):
                    c.lock("job").acquire()
            finally:
                os.seteuid(0)

    def test_old_daemon(self) -> None:
        """A daemon of before HELLO, and a server of another protocol."""
        for answer, hint in [("@%s ERR VERB : no such request\n", "VERB: no such request"), ("HTTP/1.1 400 Bad Request\n", "does not speak the protocol")]:
            with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.join(folder, "s"))
                server.listen()

                def serve() -> None:
                    with server.accept()[0] as connection:
                        tag = connection.recv(4096).decode().split()[0][1:]
                        connection.sendall((answer % tag if "%s" in answer else answer).encode())
                        while connection.recv(4096):
                            pass

                daemon = threading.Thread(target=serve)
                daemon.start()
                with self.subTest(answer), redlockd.Client(server.getsockname()) as c:
                    with self.assertRaisesRegex(redlockd.Error, hint):
                        c.lock("job", wait=5).acquire()
                daemon.join()

    def test_waits_for_the_socket(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "later")
            with redlockd.Client(path) as c:
                appears = threading.Timer(0.2, os.symlink, (os.environ["REDLOCK_SOCKET"], path))
                appears.start()
                with c.lock(self.name, wait=30):
                    appears.join()

    def test_pickle(self) -> None:
        with self.assertRaisesRegex(TypeError, "make one in each process"):
            pickle.dumps(self.c)


class Exceptions(WithClient):
    """They survive a way through multiprocessing, concurrent.futures and Celery."""

    def test_pickle_and_copy(self) -> None:
        fields = redlockd.Line(user="alice", host="a")
        fields.text = "held by alice"
        kinds = [kind for kind in vars(redlockd).values() if isinstance(kind, type) and issubclass(kind, redlockd.Error)]
        self.assertGreater(len(kinds), 13)
        for kind in kinds:
            self.assertEqual(kind.__module__, "redlockd")
            for error in kind('lock "job"', "held", fields, "CODE"), kind("", "held"):
                error.__cause__ = OSError()
                ways: List[Any] = [lambda e, p=p: pickle.loads(pickle.dumps(e, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
                for way in [*ways, copy.copy, copy.deepcopy]:
                    got = way(error)
                    self.assertIs(type(got), kind)
                    self.assertEqual((str(got), got.text, got.code), (str(error), error.text, error.code))
                    self.assertEqual((got.fields, got.fields.text), (error.fields, error.fields.text))

    def test_of_another_process(self) -> None:
        with self.c.lock(self.name), multiprocessing.get_context("spawn").Pool(1) as pool:
            with self.assertRaisesRegex(redlockd.Held, f'lock "{self.name}"') as held:
                pool.apply_async(take, (self.name,)).get(60)
            self.assertEqual(held.exception.fields["pid"], str(os.getpid()))


def take(name: str) -> None:
    redlockd.Client().lock(name, wait=0).acquire()


class WhiteSpace(WithClient):
    """Only a space separates words of the protocol."""

    def test_names_and_notes(self) -> None:
        name = "prix\u00a0net\u1680a\u2028b\u3000"
        with self.c.lock(name, note="\u00a0note\u2029\u0085\u3000x") as lease:
            (holder,) = self.c.who(name)
            self.assertEqual(holder["lock"], name)
            (mine,) = [line for line in self.c.list() if line["lock"] == name]
            self.assertEqual(mine["note"], "\u00a0note\u2029\u0085\u3000x")
            with self.assertRaisesRegex(redlockd.Held, name):
                self.c.lock(name, wait=0).acquire()
            lease.check()
        self.assertEqual(self.c.reconnects, 0)


class Threads(WithClient):
    def test_hundred_threads(self) -> None:
        inside = 0
        most = 0

        def work() -> None:
            nonlocal inside, most
            for _ in range(2):
                with self.c.lock(self.name):
                    inside += 1
                    most = max(most, inside)
                    inside -= 1

        threads = [threading.Thread(target=work) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((most, inside), (1, 0))
        self.assertEqual(self.c.reconnects, 0)

    def test_no_leak(self) -> None:
        self.c.status()
        files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        for _ in range(ROUNDS):
            with self.c.lock(self.name):
                pass
        core = self.c._core
        self.assertEqual((len(core.leases), len(core._tags), len(core._flight)), (0, 0, 0))
        self.assertLess(len(core._timers), 200)
        self.assertEqual((len(os.listdir("/proc/self/fd")), threading.active_count()), (files, threads))
        gc.collect()
        self.assertLess(sum(isinstance(o, redlockd.Lease) for o in gc.get_objects()), 10)


class Forks(WithClient):
    def ends_well(self, pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        self.assertEqual(status, 0)

    def test_child_does_not_release(self) -> None:
        with self.c.lock(self.name) as lease:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    with contextlib.suppress(redlockd.Lost):
                        lease.check()
                        os._exit(2)
                    assert lease.lost.is_set()
                    lease.release()  # does nothing
                    with redlockd.Client() as mine:
                        mine.status()
                    self.c.close()
                    status = 0
                finally:
                    os._exit(status)
            self.ends_well(pid)
            self.assertHeld()
            lease.check()
            self.assertFalse(lease.lost.is_set())

    def test_child_leaves_the_block(self) -> None:
        pid = 0
        try:
            with self.c.lock(self.name) as lease:
                pid = os.fork()
                if pid:
                    self.ends_well(pid)
                    self.assertHeld()
                    lease.check()
        finally:
            if pid == 0:
                os._exit(0)
        self.assertFree()

    def test_same_client_in_child(self) -> None:
        with self.c.lock(self.name):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    with contextlib.suppress(redlockd.Held):
                        self.c.lock(self.name, wait=0).acquire()
                        os._exit(2)
                    with self.c.lock("of the child", wait=5):
                        status = 0
                finally:
                    os._exit(status)
            self.ends_well(pid)
            self.assertHeld()
            self.assertEqual(self.c.reconnects, 0)

    def test_child_does_not_keep(self) -> None:
        code = """if True:
            import os, redlockd, sys, time
            lease = redlockd.Client().lock(sys.argv[1]).acquire()
            if os.fork() == 0:
                print(os.getpid(), flush=True)
                time.sleep(600)
            time.sleep(600)
        """
        parent = subprocess.Popen([sys.executable, "-c", code, self.name], stdout=subprocess.PIPE)
        assert parent.stdout
        left = int(parent.stdout.readline())
        try:
            self.assertHeld()
            parent.kill()
            parent.wait()
            self.assertFree()
            os.kill(left, 0)  # the child still lives
        finally:
            os.kill(left, signal.SIGKILL)
            parent.stdout.close()

    def test_fork_while_threads_lock(self) -> None:
        stop = threading.Event()

        def work(n: int) -> None:
            while not stop.is_set():
                with self.c.lock(f"{self.name}-{n}"):
                    pass

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(120)
                    status = 1
                    try:
                        with self.c.lock(self.name):
                            status = 0
                    finally:
                        os._exit(status)
                self.ends_well(pid)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_multiprocessing(self) -> None:
        with self.c.lock(self.name), multiprocessing.get_context("fork").Pool(3) as pool:
            self.assertEqual(pool.map(try_lock, [(self.name, "other")] * 6), [(False, True)] * 6)
            self.assertHeld()


shared = redlockd.Client()  # made before the pool forks


def try_lock(names: Any) -> Any:
    held, free = names
    try:
        shared.lock(held, wait=0).acquire()
        return True, False
    except redlockd.Held:
        with shared.lock(free, wait=30):
            return False, True


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.name = "aio-" + self.id().rpartition(".")[2]
        self.c = redlockd.aio.Client()
        self.addAsyncCleanup(self.c.close)

    async def assertFree(self) -> None:
        async with redlockd.aio.Client() as other:
            await (await other.lock(self.name, wait=5).acquire()).release()

    async def test_block(self) -> None:
        async with self.c.lock(self.name, wait=5) as lease:
            self.assertGreater(lease.fence, 0)
            lease.check()
            with self.assertRaises(redlockd.Held):
                await self.c.lock(self.name, wait=0).acquire()
            self.assertEqual((await self.c.who(self.name))[0]["lock"], self.name)
            self.assertEqual((await self.c.status())[0]["quorum"], "3")
            self.assertIn(self.name, [line["lock"] for line in await self.c.list()])
        await self.assertFree()

    async def test_loss_cancels_the_block(self) -> None:
        told: List[redlockd.aio.Lease] = []
        with self.assertRaises(redlockd.Lost):
            async with self.c.lock(self.name, max=0.3, on_lost=told.append) as lease:
                await asyncio.sleep(600)
        self.assertEqual(told, [lease])
        self.assertTrue(lease.lost.is_set())
        await asyncio.sleep(0)  # nothing is left of the cancellation
        if sys.version_info >= (3, 11):
            task = asyncio.current_task()
            assert task
            self.assertEqual(task.cancelling(), 0)

    async def test_block_that_swallows_the_loss(self) -> None:
        with self.assertRaises(redlockd.Lost):
            async with self.c.lock(self.name, max=0.3):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(600)
        await asyncio.sleep(0)

    async def test_exception_of_the_block_counts(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with self.c.lock(self.name):
                1 / 0
        await self.assertFree()

    async def test_cancellation_from_outside(self) -> None:
        async def work() -> None:
            async with self.c.lock(self.name):
                entered.set()
                await asyncio.sleep(600)

        entered = asyncio.Event()
        task = asyncio.get_running_loop().create_task(work())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.assertFree()

    async def test_cancelled_wait(self) -> None:
        async with self.c.lock(self.name):
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.c.lock(self.name).acquire(), 0.1)
        await self.assertFree()
        while (await self.c.status())[0]["waiters"] != "0":
            pass

    async def test_decorator(self) -> None:
        @self.c.lock(self.name)
        async def work(n: int) -> int:
            with self.assertRaises(redlockd.Held):
                await self.c.lock(self.name, wait=0).acquire()
            return n + 1

        self.assertEqual(await work(1), 2)
        await self.assertFree()

    async def test_hundred_tasks(self) -> None:
        inside = most = 0

        async def work() -> None:
            nonlocal inside, most
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        lock = self.c.lock(self.name)
        await asyncio.gather(*(work() for _ in range(100)))
        self.assertEqual((most, inside), (1, 0))

    async def test_no_leak(self) -> None:
        await self.c.status()
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(ROUNDS):
            async with self.c.lock(self.name):
                pass
        core = self.c._core
        self.assertEqual((len(core.leases), len(core._tags), len(core._flight)), (0, 0, 0))
        self.assertLess(len(core._timers), 200)
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)

    async def test_another_loop(self) -> None:
        await self.c.status()

        def run() -> None:
            asyncio.run(self.c.status())

        with self.assertRaisesRegex(RuntimeError, "make one in each loop"):
            await asyncio.get_running_loop().run_in_executor(None, run)

    async def test_fork(self) -> None:
        async with self.c.lock(self.name) as lease:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    assert lease.cause is not None
                    with redlockd.Client() as mine, contextlib.suppress(redlockd.Held):
                        mine.lock(self.name, wait=0).acquire()
                        os._exit(2)
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            lease.check()
            await self.c.status()
            self.assertEqual(self.c.reconnects, 0)


if __name__ == "__main__":
    unittest.main()
