"""Asks the database again and again, in a thread of its own, and does there what a person wants done. What it sees it
leaves where the screen finds it."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import psycopg

from snapapp.jobs.cli.queues import found_queues
from snapapp.jobs.cli.shown import first_line
from snapapp.jobs.errors import JobsError
from snapapp.jobs.rows.database import Line, Row
from snapapp.jobs.rows.people import overviews, views

Db = psycopg.Connection[Row]
Say = Callable[[str], None]
Deed = Callable[[Db, Say], str]  # what it says at its end


@dataclass(frozen=True, slots=True)
class House:
    """What every page is headed by, and what some of them show."""

    queues: list[overviews.QueueSummary]
    workers: list[overviews.WorkerSummary]
    now: datetime  # the database's


class Asks(Protocol):
    """A page, as far as we know it."""

    def look(self, db: Db, house: House) -> object: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last look at a page saw; `trouble`: why there was none since."""

    page: Asks | None = None
    shown: object = None
    house: House | None = None
    trouble: str = ""


class Looker:
    """`seen` and `said` are replaced by its thread, the page that is wanted by whoever shows it."""

    def __init__(self, connect: Callable[[], Db], *, every: float) -> None:
        self.every = every  # seconds
        self.seen = Seen()
        self.said = ""  # of what was done last
        self._line = Line(connect)
        self._wanted: queue.SimpleQueue[Deed | None] = queue.SimpleQueue()

    def look(self, page: Asks) -> Seen:
        """Once, here and now; raises what the database says."""
        with self._line.connection() as db:
            house = House(found_queues(db, overviews.GLANCE), overviews.workers(db), views.now(db))
            return Seen(page, page.look(db, house), house)

    def close(self) -> None:
        self._line.close()

    def begin(self, page: Asks, wake: Callable[[], None]) -> None:
        """`wake` is called after each look."""
        self._page, self._wake = page, wake
        threading.Thread(target=self._watch, name="looker", daemon=True).start()

    def want(self, page: Asks) -> None:
        self._page = page
        self._wanted.put(None)

    def do(self, deed: Deed) -> None:
        self._wanted.put(deed)

    def _watch(self) -> None:
        while True:
            page = self._page
            try:
                self.seen = self.look(page)
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge; a person sees it
                self._line.reset()
                self.seen = replace(self.seen, trouble=_in_words(error))
            self._wake()
            try:
                deed = self._wanted.get(timeout=self.every)
            except queue.Empty:
                continue
            if deed is not None:
                self._do(deed)

    def _do(self, deed: Deed) -> None:
        try:
            with self._line.connection() as db:
                self._say(deed(db, self._say))
        except Exception as error:  # noqa: BLE001 - likewise
            self._say(f"Nothing was done: {_in_words(error)}")

    def _say(self, words: str) -> None:
        self.said = words
        self._wake()


def _in_words(error: Exception) -> str:
    said = first_line(str(error).strip()) or type(error).__name__
    is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return f"the database does not answer: {said}" if is_away and not isinstance(error, JobsError) else said
