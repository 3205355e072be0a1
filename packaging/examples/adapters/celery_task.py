"""A base class for Celery tasks: tasks with the same lock do not run at the same time, on any host.

    app = Celery("work", task_cls=LockedTask)

    @app.task(redlock="nightly-backup", redlock_options={"wait": 5, "max": 3600})
    def backup(): ...  # backup.lease.check() before each write

If another task holds the lock for all of wait, the task is retried later. A lost lock raises redlockd.Lost.
"""

import threading

import redlockd
from celery import Task

client = redlockd.Client()  # one connection for a worker process, also after the fork of a prefork pool


class LockedTask(Task):
    redlock = None
    redlock_options = {}
    _local = threading.local()

    @property
    def lease(self):
        return self._local.lease

    def __call__(self, *args, **kwargs):
        if self.redlock is None:
            return self.run(*args, **kwargs)
        try:
            lease = client.lock(self.redlock, **{"wait": 0, **self.redlock_options}).acquire()
        except redlockd.Held as held:
            raise self.retry(exc=held)
        with lease:
            self._local.lease = lease
            return self.run(*args, **kwargs)
