"""`snapapp top`: the queue's console in a terminal, with the doctor's findings about the queue and the product."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from snapapp import logs
from snapapp.jobs.cli import top
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import LogLevel, Settings


def run(arguments: Namespace, settings: Settings) -> int:
    logs.begin(settings, at_least=LogLevel.ERROR)  # a log line would garble the screen
    with in_use(settings) as url:

        def examine() -> Sequence[Any]:
            from snapapp.jobs import doctor  # imported here: only this page needs these modules
            from snapapp.processing import checks

            return doctor.examine(url, checks.facts(settings, url))

        return top.run(url, arguments, examine)
