"""`snapapp simulate`: forecasts the queue's waiting times. The database is only opened for a forecast from recorded
jobs."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from snapapp.jobs.cli import simulate
from snapapp.jobs.rows.database import open_connection
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings


def run(arguments: Namespace, settings: Settings) -> int:
    @contextmanager
    def database() -> Iterator[psycopg.Connection[Any]]:
        with (
            in_use(settings) as url,
            open_connection(url, settings={"statement_timeout": "120s"}, autocommit=True) as db,
        ):
            yield db

    return simulate.run(database, arguments)
