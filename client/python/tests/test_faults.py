"""Tests of the client inside other programs: signals, threads, tasks and frameworks. They need a real
redlockd -dev, whose socket is $REDLOCK_SOCKET."""

import asyncio
import contextlib
import dis
import errno
import functools
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List

import redlockd
from test_redlockd import ROUNDS, WithClient

PACKAGE = os.path.dirname(redlockd.__file__)


def in_thread(function: Callable[[], Any]) -> Any:
    """Runs a function in a new thread, and returns its result."""
    results: List[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


class Blocks(WithClient):
    """A block releases what it has entered, and nothing else."""

    def test_left_in_another_thread(self) -> None:
        def dependency() -> Iterator[redlockd.Lease]:
            with self.c.lock(self.name) as lease:
                yield lease

        generator = dependency()
        lease = in_thread(lambda: next(generator))
        self.assertHeld()
        with self.assertRaises(StopIteration):
            in_thread(lambda: next(generator))
        self.assertIsInstance(lease.cause, redlockd.NotHeld)
        self.assertFree()

    def test_finalised_generator(self) -> None:
        def dependency() -> Iterator[redlockd.Lease]:
            with self.c.lock(self.name) as lease:
                yield lease

        generators = [dependency()]
        in_thread(lambda: next(generators[0]))
        generators.clear()
        gc.collect()
        self.assertFree()

    def test_shared_slots(self) -> None:
        """Two requests use one Lock, in a pool of threads that exchanges them."""
        lock = self.c.lock(self.name, slots=2)

        def dependency() -> Iterator[redlockd.Lease]:
            with lock as lease:
                yield lease

        for first in 0, 1:
            generators = [dependency(), dependency()]
            leases = [in_thread(lambda: next(generators[0])), next(generators[1])]
            self.assertEqual(next(generators[first], None), None)
            self.assertIsInstance(leases[first].cause, redlockd.NotHeld)
            leases[1 - first].check()
            self.assertFalse(leases[1 - first].lost.is_set())
            self.assertEqual(next(generators[1 - first], None), None)
            self.assertIsInstance(leases[1 - first].cause, redlockd.NotHeld)

    def test_exit_stacks(self) -> None:
        lock = self.c.lock(self.name, slots=3)
        with contextlib.ExitStack() as one:
            first = one.enter_context(lock)
            with contextlib.ExitStack() as two:
                second, third = two.enter_context(lock), two.enter_context(lock)
            for lease in second, third:
                self.assertIsInstance(lease.cause, redlockd.NotHeld)
            first.check()
        self.assertIsInstance(first.cause, redlockd.NotHeld)

    def test_ambiguous_end_releases_nothing(self) -> None:
        lock = self.c.lock(self.name, slots=2)

        def enter() -> redlockd.Lease:
            return lock.__enter__()

        one, two = enter(), enter()
        with self.assertRaisesRegex(RuntimeError, "cannot tell which one ends"):
            lock.__exit__(None, None, None)
        one.check()
        two.check()
        one.release()
        with self.assertRaisesRegex(RuntimeError, "cannot tell which one ends"):  # it may be the end of one
            lock.__exit__(None, None, None)
        two.check()
        two.release()

    def test_lost_one_and_next_one(self) -> None:
        """The block of a lease that was lost ends while the next thread holds the lock through the same Lock."""
        lock = self.c.lock(self.name)

        def dependency() -> Iterator[redlockd.Lease]:
            with lock as lease:
                yield lease

        one, two = dependency(), dependency()
        lost = next(one)
        self.c.force(self.name)
        self.assertTrue(lost.lost.wait(20))
        held = next(two)
        with self.assertRaises(redlockd.Lost):
            next(one)
        held.check()
        self.assertEqual(next(two, None), None)
        self.assertFree()

    def test_nested(self) -> None:
        lock = self.c.lock(self.name, mode="shared")
        with lock as outer:
            with lock as inner:
                pass
            self.assertIsInstance(inner.cause, redlockd.NotHeld)
            outer.check()
        self.assertFree()

    def test_block_of_a_lease(self) -> None:
        with self.c.lock(self.name).acquire() as lease:
            lease.check()
            self.assertHeld()
        self.assertFree()
        with self.assertRaises(redlockd.Lost), self.c.lock(self.name, max=0.3).acquire() as lease:
            lease.lost.wait(20)


class Injected(Exception):
    pass


class Injector:
    """Raises an exception in the package, at the n-th place where Python handles signals: at the begin of
    a function, in a loop, and before and after a call."""

    def __init__(self, at: int):
        self.left = at
        self.where = ""
        self.called: Dict[types.FrameType, bool] = {}  # whether the last instruction was a call

    def __call__(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = True
        if event != "opcode":
            return self
        name = dis.opname[frame.f_code.co_code[max(0, frame.f_lasti)]]
        was_call, self.called[frame] = self.called.get(frame), name.startswith("CALL")
        if was_call or was_call is None or name.startswith(("CALL", "RESUME", "JUMP")):
            self.left -= 1
            if self.left == 0:
                self.where = frame.f_code.co_name + (", at its begin" if was_call is None else "")
                sys.settrace(None)
                raise Injected
        return self


class Signals(WithClient):
    """An exception out of a signal handler ends the caller's wait, and nothing else."""

    def inject(self, use: Callable[[List[Any]], None], never_begun: str = "") -> int:
        """Raises an exception at each place of a use, and checks the client each time. The lock is free
        after it, except if the use got the lease, and Python did not begin its release."""
        other = self.c.lock("other of " + self.name).acquire()
        at = 0
        with redlockd.Client() as another:
            while True:
                at += 1
                injector = Injector(at)
                got: List[Any] = []
                sys.settrace(injector)
                try:
                    use(got)
                except Injected:
                    pass
                finally:
                    sys.settrace(None)
                if not injector.where:
                    break
                other.check()
                if got and never_begun in injector.where:
                    with contextlib.suppress(redlockd.NotHeld):
                        got[0].release()
                try:
                    another.lock(self.name, wait=10).acquire().release()
                except redlockd.Held as held:
                    self.fail(f"after an exception at instruction {at}, in {injector.where}: {held}")
        other.release()
        core = self.c._core
        self.await_answers()
        self.assertEqual((core.leases, core._flight, core._busy["LOCK"], self.c.reconnects), ({}, {}, 0, 0))
        return at

    def await_answers(self) -> None:
        """Waits until each request has its answer. The UNLOCK of a use that an exception has ended may be the last."""
        for _ in range(1000):
            self.c.status()
            if not self.c._core._flight:
                break

    def test_at_each_instruction_of_a_block(self) -> None:
        def use(got: List[Any]) -> None:
            with self.c.lock(self.name) as lease:
                got.append(lease)

        self.assertGreater(self.inject(use, "__exit__, at its begin"), 100)

    def test_at_each_instruction_of_acquire(self) -> None:
        def use(got: List[Any]) -> None:
            lock = self.c.lock(self.name)
            lease = lock.acquire()
            got.append(lease)
            lease.release()

        self.assertGreater(self.inject(use), 100)

    def test_storm(self) -> None:
        """A handler raises in calls, again and again."""
        other = self.c.lock("other of " + self.name).acquire()
        raised = 0
        armed = False

        def handler(*_: Any) -> None:
            nonlocal armed, raised
            if armed:
                armed = False
                raised += 1
                raise Injected

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0013)
        try:
            for _ in range(ROUNDS):
                with contextlib.suppress(Injected):
                    armed = True
                    with self.c.lock(self.name, wait=10):
                        armed = False
                armed = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertGreater(raised, 0)
        other.check()
        other.release()
        self.await_answers()
        self.assertEqual((self.c._core._flight, self.c.reconnects), ({}, 0))

    def test_calls_in_a_handler(self) -> None:
        """A handler may take and release locks, and ask, whatever it interrupts."""
        calls = 0

        def handler(*_: Any) -> None:
            nonlocal calls
            if not leases or calls >= 100:
                return
            calls += 1
            leases.pop().release()
            with self.c.lock("in the handler", wait=10):
                self.c.who(self.name)
            leases.append(self.c.lock(self.name, wait=10).acquire())

        leases = [self.c.lock(self.name).acquire()]
        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.002)
        try:
            while calls < 100:
                with self.c.lock("interrupted", wait=10) as inner:
                    inner.lost.wait(0.001)
                with redlockd.Client() as other:
                    other.status()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        leases.pop().release()
        self.assertEqual(self.c.reconnects, 0)

    def test_no_memory_in_the_middle_of_a_write(self) -> None:
        class Short:
            """A socket that writes a part of a request, and then has no memory."""

            def __init__(self, real: socket.socket):
                self.real = real
                self.writes = 0

            def send(self, data: bytes, flags: int) -> int:
                self.writes += 1
                if self.writes == 1:
                    return self.real.send(bytes(data)[:20], flags)
                if self.writes < 4:
                    raise OSError(errno.ENOBUFS, "No buffer space available")
                return self.real.send(data, flags)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.real, name)

        held = self.c.lock(self.name).acquire()
        thread: Any = self.c._thread
        thread._socket = short = Short(thread._socket)
        with self.c.lock("other", wait=10):
            held.check()
        held.release()
        self.assertGreater(short.writes, 4)
        self.assertEqual(self.c.reconnects, 0)


class Decorators(WithClient):
    def test_refused(self) -> None:
        """A call of these does not run their body, so a lock would protect nothing."""

        async def coroutine() -> None: ...

        def generator() -> Iterator[int]:
            yield 1

        async def generates() -> AsyncIterator[int]:
            yield 1

        class Callable_:
            async def __call__(self) -> None: ...

        functions: List[Any] = [coroutine, generator, generates, functools.partial(coroutine), Callable_()]
        for function in functions:
            with self.assertRaisesRegex(TypeError, "released before its body runs"):
                self.c.lock(self.name)(function)
        lock = redlockd.aio.Client().lock(self.name)
        for other in generator, generates, len, lambda: None:
            with self.assertRaisesRegex(TypeError, "decorate only coroutine functions"):
                lock(other)  # type: ignore[arg-type]

        @self.c.lock(self.name)
        def disguised() -> Any:
            return coroutine()

        with self.assertRaisesRegex(TypeError, "released before its body runs"):
            disguised()
        self.assertFree()


class Ends(WithClient):
    """What happens to a lease that nobody releases, and at the end of the interpreter."""

    def run_program(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, *arguments, "-c", program, self.name], capture_output=True, text=True, timeout=240)

    def test_dropped_lease(self) -> None:
        with self.assertWarnsRegex(ResourceWarning, f"{self.name}.*was dropped, but not released"):
            self.c.lock(self.name).acquire()
            gc.collect()
        self.assertHeld()
        ended = self.run_program(
            "import redlockd, sys\nredlockd.Client().lock(sys.argv[1] + '2').acquire()\n"
            "print(*[line['lock'] for line in redlockd.Client().list()])",
            "-Walways",
        )
        self.assertIn("ResourceWarning: lease", ended.stderr)
        self.assertIn(self.name + "2", ended.stdout)  # it stays

    def test_dropped_client(self) -> None:
        """A client that is not used ends its thread and its connection."""
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            client = redlockd.Client()
            client.lock(self.name, wait=10).acquire().release()
            thread = client._thread
            del client
            self.assertTrue(thread.ended.wait(20))
        client = redlockd.Client()
        with self.assertWarns(ResourceWarning):
            client.lock(self.name, wait=10, max=0.3).acquire()
        thread = client._thread
        del client
        self.assertTrue(thread.ended.wait(20))  # after the lease has ended
        del thread
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)

    def test_del_at_exit(self) -> None:
        """__del__ of a global at the end of the interpreter, where no other thread runs."""
        program = """if True:
            import redlockd, sys, time
            class Holder:
                def __init__(self):
                    self.c = redlockd.Client()
                    self.lease = self.c.lock(sys.argv[1]).acquire()
                def __del__(self, time=time.monotonic, out=sys.stdout):
                    began = time()
                    self.lease.release()
                    self.c.close()
                    out.write(f"{time() - began < 2}")
                    out.flush()
            holder = Holder()
        """
        ended = self.run_program(program)
        self.assertEqual((ended.stdout, ended.stderr, ended.returncode), ("True", "", 0))
        self.assertFree()

    def test_del_in_the_collector(self) -> None:
        """The collector may run a __del__ in the client's own thread."""

        class Node:
            def __init__(self, lease: redlockd.Lease):
                self.me, self.lease = self, lease

            def __del__(self) -> None:
                self.lease.release()

        lease = self.c.lock(self.name).acquire()
        gc.disable()
        try:
            Node(lease)
            collected = threading.Event()
            self.c._thread.do(lambda: (gc.collect(), collected.set()))  # type: ignore[func-returns-value,arg-type]
            self.assertTrue(collected.wait(20))
        finally:
            gc.enable()
        self.assertFree()

    def test_release_wait(self) -> None:
        """A daemon that hangs does not turn work that is done into an error, if the program says so."""
        with socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(self.folder(), "s")
            listener.bind(path)
            listener.listen()

            def serve() -> None:
                conn, _ = listener.accept()
                with conn:
                    lines = conn.makefile()
                    for line in lines:
                        tag, verb, *_ = line.split()
                        if verb == "HELLO":
                            conn.sendall(f"{tag} OK\n".encode())
                        elif verb == "LOCK":
                            conn.sendall(f"{tag} OK lease=L{tag[1:]} fence=1 ttl=60000 deadline={deadline}\n".encode())
                    lines.close()

            deadline = int((time.clock_gettime(time.CLOCK_BOOTTIME) + 60) * 1000)
            threading.Thread(target=serve, daemon=True).start()
            with redlockd.Client(path, patience=0.2) as c:
                with self.assertLogs("redlockd", "WARNING"), c.lock("a", release_wait=0):
                    pass
                lease = c.lock("a").acquire()
                with self.assertLogs("redlockd", "WARNING"):
                    lease.release(wait=0.01)
                with self.assertRaisesRegex(redlockd.Unavailable, "hangs"):
                    c.lock("a").acquire().release()

    def folder(self) -> str:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name


class Options(WithClient):
    def test_nested_says_so(self) -> None:
        with self.c.lock(self.name) as outer, self.assertLogs("redlockd", "WARNING") as logged:
            timer = threading.Timer(0.1, outer.release)
            timer.start()
            with self.c.lock(self.name):
                timer.join()
        self.assertIn("waits for itself", logged.output[0])

    def test_reentrant(self) -> None:
        lock = self.c.lock(self.name, reentrant=True)
        with lock as outer:
            with lock as inner, self.c.lock(self.name, reentrant=True) as third:
                self.assertEqual({outer.fence}, {inner.fence, third.fence})
                self.assertTrue(lock.owned())
                self.assertFalse(in_thread(lock.owned))
            self.assertHeld()
            outer.check()
            with self.assertRaises(redlockd.NotHeld):
                inner.release()
            with self.assertRaises(redlockd.Already):
                self.c.lock(self.name, "another", reentrant=True).acquire()
            with self.assertRaises(redlockd.Held):
                in_thread(self.c.lock(self.name, wait=0, reentrant=True).acquire)
        self.assertFalse(lock.owned())
        self.assertFree()
        with self.assertRaises(redlockd.Lost), self.c.lock(self.name, max=0.3, reentrant=True) as outer:
            outer.lost.wait(20)
            self.c.lock(self.name, reentrant=True, wait=10).acquire().release()  # a new grant: the lease is over
        self.assertFree()

    def test_try_and_locked(self) -> None:
        lock = self.c.lock(self.name, wait=0)
        self.assertFalse(lock.locked())
        with self.c.lock(self.name):
            self.assertIsNone(lock.try_acquire())
            self.assertTrue(lock.locked())
        lease = lock.try_acquire()
        assert lease
        lease.release()

    def test_force_and_watch(self) -> None:
        seen = self.c.watch(self.name, every=0.01)
        self.assertEqual(next(seen), [])
        lease = self.c.lock(self.name).acquire()
        self.assertEqual([line["pid"] for line in next(seen)], [str(os.getpid())])
        self.assertEqual(self.c.force(self.name)["n"], "1")
        self.assertTrue(lease.lost.wait(20))
        self.assertEqual(next(seen), [])

    def test_unknown_options(self) -> None:
        lock: Any = self.c.lock
        for option, hint in [("timeout", "wait="), ("blocking", "wait=0"), ("blocking_timeout", "wait="), ("expire", "ttl="), ("other", "there are wait=, ttl=")]:
            with self.assertRaisesRegex(TypeError, f"no option {option}=.*{hint}"):
                lock(self.name, **{option: 5})

    def test_repr(self) -> None:
        with self.c.lock(self.name, wait=5, ttl=5) as lease:
            self.assertRegex(repr(lease), f"<redlockd.Lease '{self.name}' fence={lease.fence} held, for .* s more")
            self.assertIn("connected, 1 leases", repr(self.c))
        self.assertIn("released", repr(lease))
        self.assertEqual(repr(self.c.lock("a", "b", ttl=5)), "<redlockd.Lock 'a,b' ttl=5000>")


class AsyncioFaults(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.name = "aio-" + self.id().rpartition(".")[2]
        self.c = redlockd.aio.Client()
        self.addAsyncCleanup(self.c.close)

    async def assertFree(self) -> None:
        async with redlockd.aio.Client() as other:
            await (await other.lock(self.name, wait=5).acquire()).release()

    async def in_task(self, coroutine: Any) -> Any:
        return await asyncio.get_running_loop().create_task(coroutine)

    async def test_left_in_another_task(self) -> None:
        """As a fixture of pytest-asyncio, and AsyncExitStack."""

        async def fixture() -> AsyncIterator[redlockd.aio.Lease]:
            async with lock as lease:
                yield lease

        lock = self.c.lock(self.name, slots=2)
        one, two = fixture(), fixture()
        leases = [await self.in_task(anext_(one)), await self.in_task(anext_(two))]
        self.assertIsNone(await self.in_task(anext_(one)))
        self.assertIsInstance(leases[0].cause, redlockd.NotHeld)
        leases[1].check()
        self.assertIsNone(await self.in_task(anext_(two)))

        stack = contextlib.AsyncExitStack()
        first = await self.in_task(stack.enter_async_context(lock))
        async with contextlib.AsyncExitStack() as other:
            await other.enter_async_context(lock)
        first.check()
        await self.in_task(stack.aclose())
        self.assertIsInstance(first.cause, redlockd.NotHeld)
        await self.assertFree()

    async def test_loss_of_a_block_of_a_task_that_ended(self) -> None:
        stack = contextlib.AsyncExitStack()
        lease = await self.in_task(stack.enter_async_context(self.c.lock(self.name)))
        await self.c.force(self.name)
        await asyncio.wait_for(lease.lost.wait(), 20)
        with self.assertRaises(redlockd.Lost):
            await stack.aclose()

    async def test_cancelled_close(self) -> None:
        c = redlockd.aio.Client()
        lease = await c.lock(self.name, hold="ttl", ttl=20).acquire()
        assert c._socket
        c._loop.remove_reader(c._socket)  # so that the release stays in flight
        releases = asyncio.ensure_future(lease.release())
        await asyncio.sleep(0)
        releases.cancel()
        closes = asyncio.ensure_future(c.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.assertFalse(closes.done())
        closes.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await closes
        self.assertTrue(c._core.closed)
        self.assertIsNone(c._socket)

    async def test_cancelled_from_outside_in_the_tick_of_a_loss(self) -> None:
        if sys.version_info < (3, 11):
            self.skipTest("asyncio does not count cancellations")
        for swallows in False, True:
            for first in "loss", "outside":

                async def work() -> None:
                    async with self.c.lock(self.name) as lease:
                        leases.append(lease)
                        entered.set()
                        if swallows:
                            with contextlib.suppress(asyncio.CancelledError):
                                await asyncio.sleep(600)
                        else:
                            await asyncio.sleep(600)

                leases: List[redlockd.aio.Lease] = []
                entered = asyncio.Event()
                task = asyncio.get_running_loop().create_task(work())
                await entered.wait()
                steps = [lambda: self.c._core.expire(leases[0]._state) or leases[0]._tell(), task.cancel]
                for step in steps if first == "loss" else reversed(steps):
                    step()
                with self.subTest(swallows=swallows, first=first), self.assertRaises(asyncio.CancelledError):
                    await task
                await self.assertFree()

    async def test_names_of_python(self) -> None:
        lock = self.c.lock(self.name, reentrant=True)
        async with lock as outer, lock as inner:
            self.assertEqual(outer.fence, inner.fence)
            self.assertTrue(lock.owned())
            self.assertTrue(await lock.locked())
            self.assertIsNone(await self.in_task(self.c.lock(self.name, wait=0).try_acquire()))
            self.assertIn("<redlockd.aio.Lease", repr(inner))
        async with await self.c.lock(self.name, wait=5).acquire() as lease:
            seen = self.c.watch(self.name, every=0.01)
            self.assertEqual(len(await anext_(seen)), 1)
            await lease.release()
            self.assertEqual(await anext_(seen), [])
        await self.assertFree()


async def anext_(generator: Any) -> Any:
    """Returns the next value, or None at the end."""
    async for value in generator:
        return value
    return None


class Loops(unittest.TestCase):
    def test_second_loop(self) -> None:
        c = redlockd.aio.Client()

        async def take() -> redlockd.aio.Lease:
            return await c.lock("second loop", wait=5).acquire()

        first = asyncio.run(take())
        second = asyncio.run(take())
        self.assertIsInstance(first.cause, redlockd.Lost)
        second.check()
        asyncio.run(c.close())


if __name__ == "__main__":
    unittest.main()
