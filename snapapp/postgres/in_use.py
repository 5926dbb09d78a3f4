"""Says which database is in use. A worker needs this before its first job, so nothing slow to import is imported
here."""

from collections.abc import Iterator
from contextlib import contextmanager

from snapapp import postgres
from snapapp.errors import PostgresError
from snapapp.settings.table import Settings


@contextmanager
def in_use(settings: Settings, *, create: bool = False, keep: bool = False) -> Iterator[str]:
    """The URL of the database in use: the one that is set, or the embedded one, which runs at least until the end of
    the block. With `keep` the embedded server is started again whenever it dies meanwhile."""
    if settings.database_url:
        yield settings.database_url
        return
    try:
        server = postgres.start(settings.data_dir, create=create)
    except PostgresError as error:
        if settings.data_dir.exists():
            raise
        places = " and ".join(settings.looked_in)
        raise PostgresError(f"{error} (SNAPAPP_DATABASE_URL was looked for in {places}.)") from error
    with server:
        if keep:
            server.keep()
        yield server.url
