"""`snapapp top`: queues, jobs, workers, failures and the doctor's findings, live in a terminal.

`terminal` draws lines and reads keys; `pages` has the contents of the screen; `refresher` asks the database on threads
of its own, so that no key waits for the database; `deeds` are the actions of a person; `console` gives the keys their
meaning; `plain` prints the pages for a terminal that can neither move a cursor nor send single keys.
"""

import os
import sys
from argparse import Namespace
from datetime import timedelta

from snapapp.jobs.cli.top.pages import PAGES
from snapapp.jobs.cli.top.plain import print_snapshots
from snapapp.jobs.cli.top.refresher import Examine, Refresher
from snapapp.jobs.rows.database import connect

__all__ = ["run"]

_ANSWER_WITHIN = timedelta(seconds=10)


def run(url: str, arguments: Namespace, examine: Examine) -> int:
    """Runs `snapapp top` on this database, and returns its exit code."""
    refresher = Refresher(
        lambda: connect(url, name="snapapp top", statement_timeout=_ANSWER_WITHIN, prepared_statements=False),
        examine,
        every=arguments.every,
    )
    page = PAGES[arguments.view]()
    if arguments.plain or arguments.once or _is_dumb():
        return print_snapshots(refresher, page, once=arguments.once)
    from snapapp.jobs.cli.top.console import Console  # imported here: it needs termios, which not every system has
    from snapapp.jobs.cli.top.terminal import Terminal

    with Terminal() as terminal:
        return Console(terminal, refresher, page).run()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty())
