"""Tests of the Python adapters. The parts of the frameworks that they use are written down here:

celery/app/task.py: Task.__call__(*args, **kwargs), run, retry(exc=), which returns an exception to raise.
django/core/management/base.py: BaseCommand.handle(*args, **options), CommandError(message, returncode=).
APScheduler 3 calls a job, and uses no class here.
"""

import functools
import sys
import types
import unittest


class Retry(Exception):
    pass


class Task:
    def retry(self, exc):
        return Retry(exc)


class CommandError(Exception):
    def __init__(self, message, returncode=1):
        super().__init__(message)
        self.returncode = returncode


def stand_in(name, **contents):
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(contents)


stand_in("celery", Task=Task)
stand_in("django")
stand_in("django.core")
stand_in("django.core.management")
stand_in("django.core.management.base", BaseCommand=object, CommandError=CommandError)
sys.path.insert(0, sys.argv.pop(1))

import apscheduler_job
import celery_task
import django_command
import redlockd


def unless_starved(test):
    """Repeats a test whose nodes were silent for longer than node_timeout: wait=0 does not wait for them."""

    @functools.wraps(test)
    def repeated(self):
        for left in reversed(range(20)):
            try:
                return test(self)
            except redlockd.NoQuorum:
                if not left:
                    raise

    return repeated


class Adapters(unittest.TestCase):
    def setUp(self):
        self.c = redlockd.Client()
        self.addCleanup(self.c.close)

    def assertHeld(self, name):
        self.assertIsNone(self.c.lock(name, wait=0).try_acquire())

    @unless_starved
    def test_celery(self):
        class Backup(celery_task.LockedTask):
            redlock = "celery"
            redlock_options = {"note": "backup"}

            def run(task, n):
                task.lease.check()
                self.assertHeld("celery")
                return n + 1

        self.assertEqual(Backup()(4), 5)
        with self.c.lock("celery"), self.assertRaises(Retry):
            Backup()(4)
        Backup.redlock = None
        Backup.run = lambda task, n: n
        with self.c.lock("celery"):
            self.assertEqual(Backup()(4), 4)

    @unless_starved
    def test_apscheduler(self):
        runs = []
        self.n = getattr(self, "n", 0) + 1  # the lock of an earlier try stays taken
        job = apscheduler_job.on_one_host(f"apscheduler {self.n}", runs.append, at_least=30)
        job(1)
        job(2)  # on a host whose clock is late
        self.assertEqual(runs, [1])
        other = apscheduler_job.on_one_host("apscheduler other", lambda: self.assertHeld("apscheduler other") or 7)
        self.assertEqual((other(), other()), (7, 7))

    @unless_starved
    def test_django(self):
        class Command(django_command.LockedCommand):
            redlock = "django"

            def handle_locked(command, lease, **options):
                lease.check()
                self.assertHeld("django")
                return options["verbosity"]

        self.assertEqual(Command().handle(redlock_wait=5, verbosity=1), 1)
        with self.c.lock("django"), self.assertRaises(CommandError) as refused:
            Command().handle(verbosity=1)
        self.assertEqual(refused.exception.returncode, 75)


if __name__ == "__main__":
    unittest.main()
