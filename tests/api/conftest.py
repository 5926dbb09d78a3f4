"""The application on the test's own database, without a socket: `client` with the worker off, `working_client` on."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from snapapp.app import create_app
from snapapp.jobs import Job
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.schedules import ledger
from snapapp.jobs.schedules.ledger import Declaration
from snapapp.settings.table import Settings
from tests.databases import Postgres
from tests.factory import Db

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Using `httpx`")  # it would rather have a package that nobody else needs yet
    from starlette.testclient import TestClient

QUICK: dict[str, Any] = {
    "web_connections": 4,
    "worker_children": 0,
    "worker_poll_delay": timedelta(milliseconds=100),
    "job_lock_ttl": timedelta(seconds=5),
    "job_heartbeat_interval": timedelta(milliseconds=300),
    "job_recovery_interval": timedelta(milliseconds=500),
    "shutdown_grace": timedelta(seconds=1),
    "disk_free_min_mb": 0,
}


_compiled: list[tuple[sqlalchemy.Dialect, Any]] = []  # and the statements that an engine with it has compiled


@cache
def description() -> Callable[[], dict[str, Any]]:
    """How each application describes itself, worked out once for all: that takes half a second of a processor."""
    return create_app(Settings()).openapi


def share_compiled(engine: sqlalchemy.Engine) -> None:
    """The first application's statements, compiled, are those of all: each of them would compile its own again."""
    with suppress(sqlalchemy.exc.OperationalError):  # a test's database may be away: then the next one is the first
        if not _compiled:
            engine.connect().close()  # which tells the dialect what server it talks to
            _compiled.append((engine.dialect, engine._compiled_cache))
        [(engine.dialect, engine._compiled_cache)] = _compiled


@contextmanager
def away(server: Postgres, url: str) -> Iterator[None]:
    """The database refuses everybody, and those who were connected are cut off."""
    name = sqlalchemy.make_url(url).database or ""
    with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@contextmanager
def served(url: str, data_dir: Path, **changes: Any) -> Iterator[TestClient]:
    """The whole application, started and stopped."""
    settings = dataclasses.replace(Settings(), database_url=url, data_dir=data_dir, **(QUICK | changes))
    app = create_app(settings)
    app.openapi = description()  # type: ignore[method-assign]
    here: dict[str, Any] = {"base_url": "http://localhost", "client": ("127.0.0.1", 50000)}
    with TestClient(app, raise_server_exceptions=False, **here) as client:
        share_compiled(app.state.monolith.web)
        yield client


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], TestClient]]:
    with ExitStack() as stack:

        def begin(url: str) -> TestClient:
            return stack.enter_context(served(url, tmp_path_factory.mktemp("shared"), worker_enabled=False))

        yield cache(begin)


@pytest.fixture
def client(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    if request.node.get_closest_marker("leaves_nothing"):
        yield request.getfixturevalue("shared_client")(url)
        return
    with served(url, tmp_path, worker_enabled=False) as client:
        yield client


@pytest.fixture
def working_client(url: str, tmp_path: Path) -> Iterator[TestClient]:
    with served(url, tmp_path, worker_enabled=True) as client:
        yield client


@pytest.fixture
def nightly(db: Db) -> str:
    """A schedule, declared by a worker that is alive; the name is the one that the documentation has as an example."""
    known = Registry()

    @known.scheduled(name="reports.nightly", cron="30 2 * * *", tz="Europe/Berlin")
    def work(job: Job) -> None: ...

    member = Member("a" * 32, "box-1", "box", "boot", 1, 1, [], [*known.kinds()], 4)
    roster.beat(db, member, Report(), lives_for=timedelta(hours=1))
    [schedule] = known.schedules()
    ledger.declare(db, Declaration(schedule, "default", 3, member.id))
    return schedule.name
