"""The server that the bench measures on: a new database for each run, rows to fill it, and the server's CPU time."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep
from typing import Any, LiteralString, Self

import psycopg
import sqlalchemy
from psycopg import sql

from snapapp.bench.plan import KIND
from snapapp.jobs.os import processes
from snapapp.postgres.migrate import migrate

Db = psycopg.Connection[tuple[Any, ...]]

_PACKAGES = ("psycopg", "sqlalchemy", "asyncpg", "pgqueuer", "uvloop")
_SETTINGS = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "work_mem",
    "jit",
    "autovacuum",
    "autovacuum_naptime",
    "max_connections",
]


class BenchServer:
    """Creates databases named snapapp_bench_*. Each is dropped at the end of its `with`, so none is left after
    Ctrl-C."""

    def __init__(self, url: str) -> None:
        self._url = sqlalchemy.make_url(url.replace("postgresql+psycopg://", "postgresql://", 1))
        self._prefix = f"snapapp_bench_{os.getpid()}"
        self._made = 0
        self.admin: Db = psycopg.connect(self.url_of(self._url.database or "postgres"), autocommit=True)
        self._postmaster = _parent_of(self.admin.info.backend_pid)

    def __enter__(self) -> Self:
        try:
            self._create("template", "template0")
            migrate(self.url_of(f"{self._prefix}_template"))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._drop("template")
        finally:
            self.admin.close()

    def url_of(self, database: str) -> str:
        return self._url.set(database=database).render_as_string(hide_password=False)

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """A new database for each drainer of each run, so that none has dead rows of another one."""
        self._made += 1
        name = str(self._made)
        self._create(name, f"{self._prefix}_template" if migrated else "template0")
        try:
            yield self.url_of(f"{self._prefix}_{name}")
        finally:
            self._drop(name)

    def vacuum(self, url: str) -> None:
        """Updates the statistics and writes everything to disk, so that every drainer starts in the same state."""
        with connect(url) as db:
            db.execute("VACUUM (ANALYZE)")
        self.checkpoint()

    def checkpoint(self) -> None:
        with suppress(psycopg.errors.InsufficientPrivilege):
            self.admin.execute("CHECKPOINT")

    def cpu(self) -> float | None:
        """CPU seconds of the server and all its processes, including ended ones; None: it is not on this machine."""
        if self._postmaster is None:
            return None
        with suppress(OSError):
            while True:
                before = sum(_stat(self._postmaster)[13:17])
                children = sum(map(_seconds_on_cpu, processes.children(self._postmaster)))
                if (
                    sum(_stat(self._postmaster)[13:17]) == before
                ):  # otherwise a process ended between the two sums: measure again
                    return before * _TICK + children
        return None

    def environment(self) -> dict[str, Any]:
        settings = self.admin.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s)", [list(_SETTINGS)]
        )
        return {
            "postgresql": self.admin.info.parameter_status("server_version"),
            "settings": dict(settings.fetchall()),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "cpu": _cpu_model(),
            "load_average": list(os.getloadavg()),
            "system": platform.platform(),
            "python": platform.python_version(),
            "packages": {name: installed for name in _PACKAGES if (installed := _version(name))},
            "server_cpu_readable": self.cpu() is not None,
        }

    def _create(self, name: str, template: str) -> None:
        self._drop(name)  # may be left by a killed bench that had the same pid
        self.admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(self._identifier(name), sql.Identifier(template))
        )

    def _drop(self, name: str) -> None:
        self.admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(self._identifier(name)))

    def _identifier(self, name: str) -> sql.Identifier:
        return sql.Identifier(f"{self._prefix}_{name}")


def connect(url: str) -> Db:
    """A connection of the bench itself; measured connections are opened as the product opens its own."""
    return psycopg.connect(url, autocommit=True, application_name="snapapp bench")


# Whether a job of this kind has not ended yet.
IS_UNFINISHED = "SELECT EXISTS (SELECT FROM snap_processing_job WHERE kind = %s AND finished_at IS NULL)"


def ask(db: Db, query: LiteralString, *values: object) -> Any:
    """The first value of the first row."""
    row = db.execute(query, values).fetchone()
    assert row
    return row[0]


def fill(
    db: Db,
    count: int,
    *,
    kind: str = KIND,
    priority: int = 0,
    status: str = "PENDING",
    due_in: str = "0",
    lanes: int | None = None,
) -> None:
    """Adds `count` jobs in one statement, through the same triggers as any other jobs."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, priority, status, next_retry_at, concurrency_key, finished_at)"
        " SELECT %(kind)s::text, %(priority)s::integer, %(status)s::text, now() + %(due_in)s::interval,"
        "        'lane-' || n %% %(lanes)s::integer, CASE %(status)s::text WHEN 'COMPLETED' THEN now() END"
        "   FROM generate_series(1, %(count)s::integer) AS n",
        {"kind": kind, "priority": priority, "status": status, "due_in": due_in, "lanes": lanes, "count": count},
    )


def until(condition: Callable[[], bool], what: str, *, within: float, look_every: float = 0.02) -> None:
    """Waits for a condition by looking at it again and again."""
    deadline = monotonic() + within
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {within:g} s")
        sleep(look_every)


# --- facts from the kernel --------------------------------------------------------------------------------------

_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


def _parent_of(pid: int) -> int | None:
    """The postmaster of a backend; None: the pid is not of a PostgreSQL process here (another machine or pid
    namespace)."""
    try:
        if not Path(f"/proc/{pid}/comm").read_text().startswith("postgres"):
            return None
        return _stat(pid)[3]
    except OSError:
        return None


def _stat(pid: int) -> list[int]:
    """The fields of /proc/pid/stat; the two that are not numbers (name and state) are 0."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [pid, 0, 0, *map(int, after_name[1:])]


def _seconds_on_cpu(pid: int) -> float:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    with suppress(OSError):
        return sum(_stat(pid)[13:15]) * _TICK
    return 0.0


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
