"""Asks the database again and again on a thread of its own, and carries out a person's actions there. The doctor
examines it on another one, because an examination takes too long to run at every look. The screen reads the results
from the attributes."""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic, sleep
from typing import Any, Protocol

import psycopg

from snapapp.jobs.cli.queues import count_queues
from snapapp.jobs.errors import JobsError
from snapapp.jobs.rows.database import Database, Row
from snapapp.jobs.rows.people import overviews, views

Db = psycopg.Connection[Row]
Say = Callable[[str], None]
Deed = Callable[[Db, Say], str]  # an action; returns the sentence that is shown when it is done
Examine = Callable[[], Sequence[Any]]  # returns the doctor's findings

_EXAMINED_EVERY = 15.0  # seconds


@dataclass(frozen=True, slots=True)
class Overview:
    """The queues, the workers and the doctor's findings: every page has their numbers in its heading, and some pages
    list them."""

    queues: list[overviews.QueueSummary]
    workers: list[overviews.WorkerSummary]
    now: datetime  # by the database's clock
    findings: Sequence[Any] | None = None  # None: the doctor has not answered yet


class Asks(Protocol):
    """A page, as far as the refresher needs it."""

    def look(self, db: Db, overview: Overview) -> object: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of the last look at a page; `trouble` says why a later look failed."""

    page: Asks | None = None
    shown: object = None
    overview: Overview | None = None
    trouble: str = ""


class Refresher:
    """The refresher's thread writes `seen` and `said`, the doctor's the findings; the screen's thread says which page
    it wants."""

    def __init__(self, connect: Callable[[], Db], examine: Examine, *, every: float) -> None:
        self.every = every  # seconds
        self.seen = Seen()
        self.said = ""  # the sentence about the last action
        self._database = Database(connect)
        self._ask_doctor = examine
        self._findings: Sequence[Any] | None = None
        self._examined_at = float("-inf")
        self._wanted: queue.SimpleQueue[Deed | None] = queue.SimpleQueue()

    def look(self, page: Asks) -> Seen:
        """Looks once, on the caller's thread; raises the database's errors."""
        with self._database.connection() as db:
            queues, workers = count_queues(db, overviews.GLANCE), overviews.workers(db)
            overview = Overview(queues, workers, views.now(db), self._findings)
            return Seen(page, page.look(db, overview), overview)

    def examine(self) -> None:
        """Has the doctor examine the database, for the looks that follow, unless it just has; raises the database's
        errors."""
        if monotonic() - self._examined_at >= _EXAMINED_EVERY:
            self._findings, self._examined_at = self._ask_doctor(), monotonic()

    def close(self) -> None:
        self._database.close()

    def begin(self, page: Asks, wake: Callable[[], None]) -> None:
        """Starts the threads; `wake` is called after each look."""
        self._page, self._wake = page, wake
        threading.Thread(target=self._watch, name="refresher", daemon=True).start()
        threading.Thread(target=self._keep_examining, name="doctor", daemon=True).start()

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
                self._database.reset()
                self.seen = replace(self.seen, trouble=_in_words(error))
            self._wake()
            try:
                deed = self._wanted.get(timeout=self.every)
            except queue.Empty:
                continue
            if deed is not None:
                self._do(deed)

    def _keep_examining(self) -> None:
        while True:
            with suppress(psycopg.Error):  # the next look says that the database is away
                self.examine()
            sleep(_EXAMINED_EVERY)

    def _do(self, deed: Deed) -> None:
        try:
            with self._database.connection() as db:
                self._say(deed(db, self._say))
        except Exception as error:  # noqa: BLE001 - a thread's outermost edge; a person sees it
            self._say(f"Nothing was done: {_in_words(error)}")

    def _say(self, words: str) -> None:
        self.said = words
        self._wake()


def _in_words(error: Exception) -> str:
    # before the reason, libpq tells at length to whom it could not connect
    message = str(error).strip().partition("\n")[0].rpartition(" failed: ")[2] or type(error).__name__
    is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return f"the database does not answer: {message}" if is_away and not isinstance(error, JobsError) else message
