"""`snapapp top`: the queue's console in a terminal, with the doctor of the whole house."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from snapapp import logs
from snapapp.jobs.cli import top
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import LogLevel, Settings


def run(arguments: Namespace, settings: Settings) -> int:
    logs.begin(settings, at_least=LogLevel.ERROR)  # a line of ours would tear the screen
    with in_use(settings) as url:

        def examine() -> Sequence[Any]:
            from snapapp.jobs import doctor  # with all that it needs, which no other page does
            from snapapp.processing import checks

            return doctor.examine(url, checks.house(settings, url))

        return top.run(url, arguments, examine)
