"""The queue's own commands, on the database in use: jobs, queues, workers, schedules, limits, retention, fleet. A
person waits for each command, so it imports only what it needs."""

from argparse import Namespace

from snapapp.jobs import cli
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings


def run(arguments: Namespace, settings: Settings) -> int:
    """Runs one of these commands; returns its exit code."""
    if arguments.needs_kinds:
        from snapapp.processing import loading  # imports as much as a worker does

        loading.load(settings)
    with in_use(settings) as url:
        return cli.run(url, arguments)
