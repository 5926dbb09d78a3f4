"""`snapapp top`: queues, jobs, workers, failures and the doctor's findings, live in a terminal.

`terminal` draws lines and reads keys; `pages` say what is on the screen; `looker` asks the database in a thread of its
own, so that no key waits for it; `deeds` are what a person does; `console` is what the keys mean; `plain` is all of it
where a terminal can neither move a cursor nor send keys.
"""

import os
import sys
from argparse import Namespace
from datetime import timedelta

from snapapp.jobs.cli.top.looker import Looker
from snapapp.jobs.cli.top.pages import PAGES, Examine
from snapapp.jobs.cli.top.plain import print_snapshots
from snapapp.jobs.rows.database import connect

__all__ = ["run"]

_ANSWER_WITHIN = timedelta(seconds=10)


def run(url: str, arguments: Namespace, examine: Examine) -> int:
    """What was typed, on this database; its exit code."""
    looker = Looker(
        lambda: connect(url, name="snapapp top", statement_timeout=_ANSWER_WITHIN, prepared_statements=False),
        every=arguments.every,
    )
    page = PAGES[arguments.view](examine)
    if arguments.plain or arguments.once or _is_dumb():
        return print_snapshots(looker, page, once=arguments.once)
    from snapapp.jobs.cli.top.console import Console  # and termios, which not every system has
    from snapapp.jobs.cli.top.terminal import Terminal

    with Terminal() as terminal:
        return Console(terminal, looker, page, examine).run()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty())
