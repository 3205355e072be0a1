"""A base class for Django management commands: a command runs once at a time, on all hosts.

    class Command(LockedCommand):
        redlock = "send-invoices"

        def handle_locked(self, lease, *args, **options):
            for invoice in invoices:
                lease.check()  # raises redlockd.Lost
                send(invoice)
"""

import redlockd
from django.core.management.base import BaseCommand, CommandError


class LockedCommand(BaseCommand):
    redlock = ""

    def add_arguments(self, parser):
        parser.add_argument("--redlock-wait", type=float, default=0, help="seconds to wait for another run of the command")

    def handle(self, *args, redlock_wait=0, **options):
        try:
            with redlockd.Client() as client, client.lock(self.redlock, wait=redlock_wait, note="manage.py") as lease:
                return self.handle_locked(lease, *args, **options)
        except redlockd.Held as held:
            raise CommandError(str(held), returncode=75)
