"""Connections that break at the worst moment: the statement has run, or the commit is done, and nobody heard of it.

Killing backends from outside rarely hits these few microseconds; here a share of all calls ends like that.
"""

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection

from snapapp.jobs.model import Job
from tests.labs.chaos.statements import home

_CALLS = ("claim", "complete", "settle_batch", "recover", "release")

Transaction = Callable[[Job], AbstractContextManager[Connection]]
Note = Callable[..., None]


class Scissors:
    """`share` of the calls are cut."""

    def __init__(self, share: float, seed: str, note: Note) -> None:
        self._share = share
        self._dice = random.Random(seed)
        self._note = note

    def cut(self, where: str) -> None:
        if self._dice.random() < self._share:
            self._note("cut", where=where)
            raise psycopg.OperationalError(f"the lab cut the connection {where}")

    def around(self, transaction: Transaction) -> Transaction:
        @contextmanager
        def may_break(job: Job) -> Iterator[Connection]:
            with transaction(job) as db:
                self.cut("before the first statement")
                yield db
                self.cut("before the commit")
            self.cut("after the commit")

        return may_break

    def hold_to_the_queue(self) -> None:
        """Statements that commit by themselves: cut after they have."""
        for name in _CALLS:
            setattr(home(name), name, self._cut_after(name, getattr(home(name), name)))

    def _cut_after(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(db: Any, *arguments: Any, **options: Any) -> Any:
            answer = function(db, *arguments, **options)
            if isinstance(db, psycopg.Connection):
                self.cut(f"after {name}")
            return answer

        return call
