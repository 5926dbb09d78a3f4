"""Compares the schema of a database with the one that this code needs. It does without SQLAlchemy and Alembic, because
importing them takes longer than the comparison."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from snapapp.jobs.errors import MigrationFailed

OLDEST = 14


def migrations_folder() -> Path:
    """The folder with the migrations: beside the package in a checkout, inside the package in a wheel."""
    package = Path(__file__).parent.parent
    for folder in (package.parent / "migrations", package / "_migrations"):
        if (folder / "env.py").exists():
            return folder
    raise MigrationFailed(f"the folder migrations/ is missing beside {package}")


@dataclass(frozen=True)
class History:
    """A line of migrations, and the table in which a database keeps its revision."""

    name: str
    version_table: str

    @property
    def folder(self) -> Path:
        return migrations_folder() / "versions" / self.name

    @property
    def head(self) -> str:
        """The newest revision. Each migration's file name begins with its revision, a growing number."""
        return max(path.name.partition("_")[0] for path in self.folder.glob("[0-9]*_*.py"))

    def revision(self, db: psycopg.Connection[tuple[object, ...]]) -> str | None:
        """The revision of this database; None: none of these migrations was applied."""
        if db.execute("SELECT to_regclass(%s)", [self.version_table]).fetchone() == (None,):
            return None
        row = db.execute(sql.SQL("SELECT version_num FROM {}").format(sql.Identifier(self.version_table))).fetchone()
        return str(row[0]) if row else None


QUEUE = History("queue", "job_version")


def revisions(url: str, *histories: History) -> dict[History, str | None]:
    """What a database is at, by history."""
    # with SQL_ASCII psycopg returns bytes, even for the server's version
    with psycopg.connect(url, connect_timeout=10, application_name="snapapp start", client_encoding="utf8") as db:
        check_server(db)
        return {history: history.revision(db) for history in histories}


def is_newer(revision: str | None, head: str) -> bool:
    """Whether a later release than the one whose newest revision is `head` has migrated a database."""
    return revision is not None and revision > head


def check_server(db: psycopg.Connection[Any]) -> None:
    """Raises MigrationFailed if snapapp cannot use this server or database. Called at every start and migration."""
    if why := unfit(db.info.server_version, db.info.parameter_status("server_encoding") or ""):
        raise MigrationFailed(why)


def unfit(version: int, encoding: str) -> str | None:
    """Why snapapp cannot use this server or database; None: it can."""
    if version < OLDEST * 10_000:
        return f"The server is PostgreSQL {version // 10_000}, and {OLDEST} or newer is needed."
    if encoding != "UTF8":
        return (
            f"The database has the encoding {encoding}, and UTF8 is needed: make another one with CREATE DATABASE name "
            "ENCODING 'UTF8' TEMPLATE template0."
        )
    return None
