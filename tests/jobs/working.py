"""A real worker for a test, with short intervals, and what its events said."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy

from snapapp.jobs import Job
from snapapp.jobs.context import Hook
from snapapp.jobs.events import ALL, Event, Events
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import JobsSettings, RetrySettings
from snapapp.jobs.worker.worker import Worker
from tests.factory import Db, row

LOOKS_AT_LEAST = 200
PATIENCE = float(os.environ.get("SNAPAPP_TESTS_WAIT", "60"))  # seconds; less where a test is expected to fail

QUICK: dict[str, Any] = {
    "beat_every": timedelta(milliseconds=300),
    "lease_for": timedelta(seconds=2),
    "recover_every": timedelta(milliseconds=500),
    "poll_delay": timedelta(milliseconds=200),
    "retry": RetrySettings(base=timedelta(milliseconds=20), maximum=timedelta(milliseconds=50), jitter=0),
    "children": 1,
}


def quick_settings(url: str, **changes: Any) -> JobsSettings:
    return JobsSettings(database_url=url, **(QUICK | changes))


class Heard:
    """Every event, and a way to wait for one."""

    def __init__(self, events: Events) -> None:
        self._news = threading.Condition()
        self._events: list[Event] = []
        self.undeclared: list[Event] = []  # that say more than docs/events.md promises, or are not in it
        events.on(None, self._hear)

    def _hear(self, event: Event) -> None:
        with self._news:
            if event.name not in ALL or not event.facts.keys() <= {*ALL[event.name].facts}:
                self.undeclared.append(event)
            self._events.append(event)
            self._news.notify_all()

    def all(self, name: str) -> list[Event]:
        with self._news:
            return [event for event in self._events if event.name == name]

    def wait_for(self, name: str, *, times: int = 1, within: float = PATIENCE) -> Event:
        with self._news:
            assert self._news.wait_for(lambda: self._count(name) >= times, within), f"no {name}: {self._events}"
            return [event for event in self._events if event.name == name][times - 1]

    def _count(self, name: str) -> int:
        return sum(event.name == name for event in self._events)


@contextmanager
def working(
    url: str, registry: Registry, *, context: Hook | None = None, **changes: Any
) -> Iterator[tuple[Worker, Heard]]:
    events = Events()
    heard = Heard(events)
    runtime = Runtime(quick_settings(url, **changes), registry=registry, events=events, context=context)
    worker = runtime.worker()
    worker.start()
    try:
        yield worker, heard
    finally:
        worker.stop(grace=timedelta(seconds=1))
        runtime.close()
    assert heard.undeclared == []


class Gate:
    """A job that waits in here until the test lets it go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, _job: Job) -> None:
        self.entered.release()
        assert self.open.wait(20)

    def wait_until_entered(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.entered.acquire(timeout=20)


def put_effect(db: sqlalchemy.Connection, job: Job, _result: Any) -> None:
    """A commit hook whose rows can be counted."""
    db.execute(sqlalchemy.text("INSERT INTO effect VALUES (:job)"), {"job": job.id})


def until(fact: Callable[[], object], within: float = PATIENCE) -> None:
    """Waits until something is true of the database or a process: nobody tells us, so we look. After a time in which
    the whole machine stood still we look some more before we give up."""
    deadline, looks = time.monotonic() + within, 0
    while not fact():
        looks += 1
        assert time.monotonic() < deadline or looks < LOOKS_AT_LEAST, "it did not happen"
        threading.Event().wait(0.01)


def until_status(db: Db, job_id: int, *statuses: str, within: float = PATIENCE) -> Any:
    until(lambda: row(db, job_id).status in statuses, within)
    return row(db, job_id)
