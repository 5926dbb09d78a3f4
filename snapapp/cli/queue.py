"""The queue's own commands, on the database in use: jobs, queues, workers, schedules, limits, retention,
fleet. Somebody waits for each of them, so it imports what it needs and nothing more."""

from argparse import Namespace

from snapapp import logs
from snapapp.jobs import cli
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import LogLevel, Settings


def run(arguments: Namespace, settings: Settings) -> int:
    """The command that was typed; its exit code."""
    logs.begin(settings, at_least=LogLevel.WARNING)
    if arguments.needs_kinds:
        from snapapp.jobs.enqueue import Defaults
        from snapapp.processing import loading  # with all that a worker needs

        loading.load(settings)
        Defaults.max_attempts = settings.job_max_attempts
    with in_use(settings) as url:
        return cli.run(url, arguments)
