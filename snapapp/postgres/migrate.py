"""Brings a database to the schema that the product needs: the queue's, and then its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.errors import MigrationError
from snapapp.jobs import migrations
from snapapp.jobs.errors import MigrationFailed
from snapapp.jobs.schema import QUEUE
from snapapp.postgres.database import session
from snapapp.postgres.schema import PRODUCT


def migrate(url: str, *, if_new: Callable[[Session], object] | None = None) -> None:
    """Runs what is missing. Two callers at once are fine: the second finds it done. What a database that was empty is
    to begin with, `if_new` adds in the same transaction."""
    with _transaction(url) as db:
        is_new = migrations.revision(db, PRODUCT) is None
        for history in (QUEUE, PRODUCT):
            migrations.upgrade(db, history)
        if is_new and if_new:
            if_new(session(db))


def take_down(url: str) -> None:
    """All of it, with what it holds."""
    with _transaction(url) as db:
        for history in (PRODUCT, QUEUE):
            migrations.downgrade(db, history)


@contextmanager
def _transaction(url: str) -> Iterator[sqlalchemy.Connection]:
    try:
        with migrations.transaction(url) as db:
            yield db
    except MigrationFailed as error:
        raise MigrationError(str(error)) from error
