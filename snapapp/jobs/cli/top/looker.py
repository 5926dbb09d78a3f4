"""Asks the database again and again on a thread of its own, and carries out a person's actions there. The screen reads
the results from its attributes."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import psycopg

from snapapp.jobs.cli.queues import count_queues
from snapapp.jobs.cli.shown import first_line
from snapapp.jobs.errors import JobsError
from snapapp.jobs.rows.database import Line, Row
from snapapp.jobs.rows.people import overviews, views

Db = psycopg.Connection[Row]
Say = Callable[[str], None]
Deed = Callable[[Db, Say], str]  # an action; returns the sentence that is shown when it is done


@dataclass(frozen=True, slots=True)
class House:
    """The queues and workers: every page has their numbers in its heading, and some pages list them."""

    queues: list[overviews.QueueSummary]
    workers: list[overviews.WorkerSummary]
    now: datetime  # by the database's clock


class Asks(Protocol):
    """A page, as far as the looker needs it."""

    def look(self, db: Db, house: House) -> object: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of the last look at a page; `trouble` says why a later look failed."""

    page: Asks | None = None
    shown: object = None
    house: House | None = None
    trouble: str = ""


class Looker:
    """The looker's thread writes `seen` and `said`; the screen's thread says which page it wants."""

    def __init__(self, connect: Callable[[], Db], *, every: float) -> None:
        self.every = every  # seconds
        self.seen = Seen()
        self.said = ""  # the sentence about the last action
        self._line = Line(connect)
        self._wanted: queue.SimpleQueue[Deed | None] = queue.SimpleQueue()

    def look(self, page: Asks) -> Seen:
        """Looks once, on the caller's thread; raises the database's errors."""
        with self._line.connection() as db:
            house = House(count_queues(db, overviews.GLANCE), overviews.workers(db), views.now(db))
            return Seen(page, page.look(db, house), house)

    def close(self) -> None:
        self._line.close()

    def begin(self, page: Asks, wake: Callable[[], None]) -> None:
        """Starts the thread, which calls `wake` after each look."""
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
        except Exception as error:  # noqa: BLE001 - a thread's outermost edge; a person sees it
            self._say(f"Nothing was done: {_in_words(error)}")

    def _say(self, words: str) -> None:
        self.said = words
        self._wake()


def _in_words(error: Exception) -> str:
    message = first_line(str(error).strip()) or type(error).__name__
    is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return f"the database does not answer: {message}" if is_away and not isinstance(error, JobsError) else message
