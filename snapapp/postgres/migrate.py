"""Migrates a database to the schema that the product needs: first the queue's migrations, then the product's."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from snapapp.errors import MigrationError
from snapapp.jobs import migrations
from snapapp.jobs.errors import MigrationFailed
from snapapp.jobs.schema import QUEUE
from snapapp.postgres.database import session
from snapapp.postgres.schema import PRODUCT


def migrate(url: str, *, if_new: Callable[[Session], object] | None = None) -> None:
    """Runs the missing migrations. Two callers at once are fine: the second has nothing left to do. In a database that
    was empty, `if_new` adds the first rows in the same transaction."""
    try:
        with migrations.transaction(url) as db:
            is_new = migrations.revision(db, PRODUCT) is None
            for history in (QUEUE, PRODUCT):
                migrations.upgrade(db, history)
            if is_new and if_new:
                if_new(session(db))
    except MigrationFailed as error:
        raise MigrationError(str(error)) from error
