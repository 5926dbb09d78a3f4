"""Prints one snapshot of a page after the other as plain text: for files, and for terminals that can only print."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from time import sleep
from typing import Any, NoReturn

import psycopg

from snapapp.jobs.amounts import local
from snapapp.jobs.cli.shown import say
from snapapp.jobs.cli.tables import visible, write_lines
from snapapp.jobs.cli.top.pages import Lines, Page, Table, headline, in_lines
from snapapp.jobs.cli.top.refresher import Refresher, Seen


def print_snapshots(refresher: Refresher, page: Page, *, once: bool) -> int:
    """Prints snapshots until it is interrupted, or a single one. While the database does not answer, each look prints a
    line that says so."""
    os.environ["NO_COLOR"] = "1"  # read by the functions that paint the tables
    with closing(refresher):
        if not once:
            _print_for_ever(refresher, page)
        refresher.examine()
        _print(refresher.look(page))
        return 0


def _print_for_ever(refresher: Refresher, page: Page) -> NoReturn:
    while True:
        try:
            refresher.examine()
            _print(refresher.look(page))
        except psycopg.Error as error:
            say(f"The database does not answer: {' '.join(str(error).split())}")
        say("")
        sys.stdout.flush()
        sleep(refresher.every)


def _cure(it: Any) -> Iterator[str]:
    """What to do about a finding of the doctor; on a screen, Enter shows it instead."""
    if do := getattr(it, "do", ""):
        yield f"{it.id}: {do}{f'  {it.paste}' if it.paste else ''}"


def _print(seen: Seen) -> None:
    assert seen.overview
    say(f"{local(seen.overview.now)}  {headline(seen.overview)}")
    match seen.shown:
        case Table(rows=[]) as table:
            say(table.empty)
        case Table() as table:
            write_lines([*in_lines(table), table.note] if table.note else in_lines(table))
            write_lines(visible(line) for row in table.rows for line in _cure(row.it))
        case Lines(lines):
            write_lines(visible(line) for line in lines)
