"""For APScheduler 3: a job runs on one of the hosts that schedule it.

    scheduler.add_job(on_one_host("nightly-backup", backup, at_least=60), "cron", hour=3)

at_least, in seconds, is longer than the clocks of the hosts differ: a host whose clock is late skips the job.
"""

import functools

import redlockd

client = redlockd.Client()


def on_one_host(name, job, at_least=0, **options):
    """Returns a job that does nothing if another host runs it."""

    @functools.wraps(job)
    def locked(*args, **kwargs):
        lease = client.lock(name, wait=0, min=at_least or None, **options).try_acquire()
        if lease is None:
            return None
        with lease:
            return job(*args, **kwargs)

    return locked
