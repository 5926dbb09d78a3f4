"""Real PostgreSQL for every test: `url` is a fresh, migrated database, `db` a worker's connection to it.

The server is the embedded one; a test marked `both_servers` runs on the oldest one that the system has as well. What
is marked `at_length` runs with --everything only, and so do the runs of `both_servers_at_length` on the oldest.
"""

import fcntl
import gc
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy
from hypothesis import HealthCheck, settings
from psycopg.conninfo import conninfo_to_dict

from snapapp import postgres
from snapapp.jobs import registry
from snapapp.jobs.rows import database
from snapapp.postgres.migrate import migrate
from tests.commands import bare_call, call, quick, run
from tests.databases import Postgres
from tests.factory import Db
from tests.warm import hear_signals

__all__ = ["bare_call", "call", "quick", "run"]  # fixtures

EMBEDDED = "pg18"
PROGRAMS = {  # of the system's servers, by name
    f"pg{folder.parent.name}": folder
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    if float(folder.parent.name) >= 14
}
OLDEST = next(iter(PROGRAMS), None)
NO_OLDEST = "there is no PostgreSQL below /usr/lib/postgresql"
needs_oldest = pytest.mark.skipif(OLDEST is None, reason=NO_OLDEST)

# Nothing here outlives the tests, so nothing waits for a disk, and no database lives for long enough to be vacuumed:
# looking at all of them every 15 s took a twentieth of the processors.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "1d",
}
STARTED_WITHIN = 30.0
_prepared_in = pytest.StashKey[str]()

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("everything", settings.get_profile("default"), max_examples=100)
settings.register_profile(
    "long", settings.get_profile("default"), derandomize=False, max_examples=30_000, stateful_step_count=50
)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everything", action="store_true", help="also what is marked at_length or both_servers_at_length"
    )
    parser.addoption("--pgbouncer", action="store_true", help="through PgBouncer in transaction mode, nothing prepared")


def pytest_configure(config: pytest.Config) -> None:
    # what somebody has set for their own server, such as a port, is not for those of the tests
    for name in [name for name in os.environ if name.startswith("SNAPAPP_")]:
        del os.environ[name]
    if config.getoption("everything") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("everything")
    _keep_videos(config)
    hear_signals()
    for marker in (
        "both_servers: runs on the embedded PostgreSQL and on the system's oldest one",
        "both_servers_at_length: on the oldest one with --everything only",
        "direct: wants what no pooler hands on, such as LISTEN; not with --pgbouncer",
        "leaves_nothing: shares a database, and an application, with all of its module that say so",
        "at_length: runs with --everything only; what a shorter test holds in every run, for longer or in another way",
    ):
        config.addinivalue_line("markers", marker)


def _keep_videos(config: pytest.Config) -> None:
    """Where pytest may keep something, the videos that tests encode are kept, for all processes and the next run."""
    with suppress(AttributeError, OSError):  # somebody wants no cache, or may not write here
        folder = config.cache.mkdir("videos")
        if os.access(folder, os.W_OK):
            os.environ["TESTS_KEEP_VIDEOS_IN"] = str(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells each process of xdist where to find the files of a server."""
    if _prepared_in not in node.config.stash:
        stack = ExitStack()
        folder = stack.enter_context(guarded_folder())
        folder.chmod(0o711)  # a server that does not run as root has its files below
        node.config.stash[_prepared_in] = str(folder)
        node.config.add_cleanup(stack.close)
    node.workerinput["prepared"] = node.config.stash[_prepared_in]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = {marker.name for marker in metafunc.definition.iter_markers()}
    if "server_name" not in metafunc.fixturenames or not marked & {"both_servers", "both_servers_at_length"}:
        return
    names = [pytest.param(EMBEDDED)]
    if "both_servers" in marked or metafunc.config.getoption("everything"):
        absent = pytest.mark.skip(reason=NO_OLDEST)
        names.append(pytest.param(OLDEST, id=OLDEST) if OLDEST else pytest.param("", id="system", marks=absent))
    metafunc.parametrize("server_name", names)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes stays: to look through it for garbage, now and later, is in vain, and took two of the five
    seconds of a processor that collecting takes each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)  # of 700, each process spent a sixteenth of its time on looking for garbage
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # the files that take longest first, those of browsers and of the whole, and last those that take a second or two:
    # else one process works alone at the end
    longest = ("tests/web/", "tests/docs/", "tests/processing/", "tests/test_")
    shortest = ("tests/settings/", "tests/sources/")
    items.sort(key=lambda item: item.nodeid.startswith(shortest) - item.nodeid.startswith(longest))
    if config.getoption("pgbouncer"):
        for item in items:
            if item.get_closest_marker("direct"):
                item.add_marker(pytest.mark.skip(reason="through a pooler it cannot be"))
    if config.getoption("everything"):
        return
    by_default = [item for item in items if not item.get_closest_marker("at_length")]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("at_length")])
    items[:] = by_default


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a test must not leave to those that come after it in this process.

    Kinds that it declared in a module of its own are forgotten: the next test may have a module of that name, or
    declare the same kind. A real-time thread (some libraries make one, as root) would starve every server and process
    that later tests start.
    """
    _forget_modules_of_the_test()
    if sys.platform == "linux" and os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        pytest.fail(f"{item.nodeid} has changed how this process is scheduled")


def _forget_modules_of_the_test() -> None:
    known = registry.default
    for kind, processor in list(known._processors.items()):
        module = processor.function.__module__
        if module.partition(".")[0] not in ("snapapp", "tests"):
            del known._processors[kind]
            known._schedules.pop(kind, None)
            known._declared.pop(kind, None)
            sys.modules.pop(module, None)


# What to type for what a test was skipped without; by words of the reason that it gives.
_TO_HAVE = {
    "there is no browser": "a browser: apt install chromium-headless-shell",
    "there is no PostgreSQL below": "the system's PostgreSQL, the oldest that is supported: apt install postgresql",
    "libfaketime": "a clock to set: apt install faketime",
    "age is not installed": "a program that seals backups: apt install age",
    "PgBouncer is not installed": "a pooler: apt install pgbouncer",
    "caddy is not installed": "a proxy: apt install caddy",
    "nginx is not installed": "a proxy: apt install nginx",
    "promtool is not installed": "a judge of alert rules: promtool, of the package prometheus",
    "OpenTelemetry is not installed": "what sends traces: make telemetry",
    "Dask is not installed": "a cluster: make setup, which installs what the lock has",
    "openssl is not installed": "certificates for a cluster: apt install openssl",
    "there is no small disk": "the right to mount one: root, or a kernel that gives users namespaces",
    "make peers": "other queues to compare with: make peers",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A whole run that skipped hundreds of tests looks as one that skipped none."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    for words, advice in _TO_HAVE.items():
        if skipped := sum(words in reason for reason in reasons):
            terminalreporter.write_line(f"{skipped} skipped for want of {advice}")


# --- what tests ask for -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def everything(pytestconfig: pytest.Config) -> bool:
    """Was it asked for? A test may then go on for longer."""
    return bool(pytestconfig.getoption("everything"))


@pytest.fixture
def server_name() -> str:
    return EMBEDDED


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Callable[[str], Postgres]]:
    """Each server starts when the first test wants it."""
    running: dict[str, Postgres] = {}
    prepared = getattr(pytestconfig, "workerinput", {}).get("prepared")
    is_pooled = pytestconfig.getoption("pgbouncer")
    with ExitStack() as stack:
        if is_pooled:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(database, "PREPARE_AFTER", None)

        def server(name: str) -> Postgres:
            if is_pooled:
                name = OLDEST or name  # the embedded one lets nobody else's processes to its socket
            if name not in running:
                folder = stack.enter_context(guarded_folder())
                if prepared:
                    subprocess.run(["cp", "-a", f"{_prepared(name, Path(prepared))}/.", folder], check=True)
                url = stack.enter_context(_serving(name, folder))
                running[name] = Postgres(url, stack.enter_context(pgbouncer(url)) if is_pooled else "")
                stack.callback(running[name].close)
            return running[name]

        yield server


@pytest.fixture(scope="session")
def make_home(pytestconfig: pytest.Config) -> Iterator[Callable[[Path], None]]:
    """Puts the files of an embedded server into a folder, for a test that ends that server: its database is migrated.
    To make them anew takes a second of a processor, for initdb and the migration."""
    with ExitStack() as stack:
        prepared = getattr(pytestconfig, "workerinput", {}).get("prepared") or stack.enter_context(guarded_folder())

        def copy(home: Path) -> None:
            made = _made_once(Path(prepared) / "home", _make_home)
            subprocess.run(["cp", "-a", f"{made}/.", home], check=True)

        yield copy


@pytest.fixture
def server(servers: Callable[[str], Postgres], server_name: str) -> Postgres:
    return servers(server_name)


@pytest.fixture(scope="module")
def shared_url() -> Iterator[Callable[[Postgres], str]]:
    with ExitStack() as stack:
        yield cache(lambda server: stack.enter_context(server.database("migrated")))


@pytest.fixture
def url(server: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database at the newest revision, the test's own, or that of all which leave nothing."""
    if request.node.get_closest_marker("leaves_nothing"):
        yield request.getfixturevalue("shared_url")(server)
        return
    with server.database("migrated") as url:
        yield url


@pytest.fixture
def empty_url(server: Postgres) -> Iterator[str]:
    """A database with nothing in it."""
    with server.database("template0") as url:
        yield url


@pytest.fixture
def db(server: Postgres, url: str) -> Iterator[Db]:
    """An autocommit connection as the worker opens it."""
    with server.connection(url) as connection:
        yield connection


@pytest.fixture
def engine(server: Postgres, url: str) -> Iterator[sqlalchemy.Engine]:
    with server.engine(url) as engine:
        yield engine


# --- servers ----------------------------------------------------------------------------------------------------


@contextmanager
def embedded_server() -> Iterator[str]:
    with guarded_folder() as folder, _embedded_in(folder) as url:
        yield url


@contextmanager
def system_server(programs: Path) -> Iterator[str]:
    with guarded_folder() as folder, _system_in(folder, programs) as url:
        yield url


def _serving(name: str, folder: Path, end: signal.Signals = signal.SIGQUIT) -> AbstractContextManager[str]:
    return _embedded_in(folder) if name == EMBEDDED else _system_in(folder, PROGRAMS[name], end)


def _prepared(name: str, folder: Path) -> Path:
    """The files of a server that has the migrated database: to copy them takes a processor a twentieth of what it takes
    to make them."""

    def make(files: Path) -> None:
        with _serving(name, files, signal.SIGINT) as url:
            Postgres(url).close()

    return _made_once(folder / name, make)


def _make_home(files: Path) -> None:
    with postgres.start(files, create=True) as server:
        migrate(server.url)


def _made_once(files: Path, make: Callable[[Path], None]) -> Path:
    """By the first process that asks."""
    with files.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unfinished = files.with_suffix(".unfinished")
        if not files.exists():
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(files)
    return files


@contextmanager
def _embedded_in(folder: Path) -> Iterator[str]:
    local = "".join(f"{name} = {value}\n" for name, value in SETTINGS.items())
    (folder / "postgres.local.conf").write_text(local)
    with postgres.start(folder, create=True) as server:
        yield server.url


@contextmanager
def _system_in(folder: Path, programs: Path, end: signal.Signals = signal.SIGQUIT) -> Iterator[str]:
    """SIGQUIT, where nobody will read its files again."""
    who: dict[str, Any] = {"cwd": folder, "start_new_session": True}
    if os.geteuid() == 0:  # which PostgreSQL refuses
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        who |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    if not (folder / "data").exists():
        initdb = [str(programs / "initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*initdb, "--locale=C", "--no-sync"], check=True, capture_output=True, **who)
        with (folder / "data" / "postgresql.conf").open("a") as told:  # not as switches, which no ALTER SYSTEM undoes
            told.writelines(f"{name} = '{value}'\n" for name, value in (SETTINGS | {"listen_addresses": ""}).items())
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(programs / "postgres"), "-D", "data", "-k", str(folder)], stdout=log, stderr=log, **who
        )
    try:
        url = f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}"
        wait_for(url, process, folder / "log")
        yield url
    finally:
        process.send_signal(end)
        process.wait()


@contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """In front of a server: each transaction on whatever connection is free, so nothing lasts longer than that."""
    where = conninfo_to_dict(url)
    with guarded_folder() as folder:
        who: dict[str, Any] = {"cwd": folder, "start_new_session": True}
        if os.geteuid() == 0:  # which PgBouncer refuses, too
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            who |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        (folder / "pgbouncer.ini").write_text(
            f"""
            [databases]
            * = host={where["host"]} port={where.get("port", 5432)} user={where["user"]}
            [pgbouncer]
            pool_mode = transaction
            auth_type = any
            unix_socket_dir = {folder}
            listen_port = 6432
            listen_addr =
            max_client_conn = 1000
            default_pool_size = 4
            server_idle_timeout = 5
            """
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(["pgbouncer", "pgbouncer.ini"], stdout=log, stderr=log, **who)
        try:
            pooled = f"postgresql://{where['user']}@/postgres?host={quote(str(folder), safe='')}&port=6432"
            wait_for(pooled, process, folder / "log")
            yield pooled
        finally:
            process.kill()
            process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTED_WITHIN
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start: {log.read_text()}") from None
            time.sleep(0.02)


@contextmanager
def guarded_folder() -> Iterator[Path]:
    """Removed in the end, by another process if ours is killed; a server whose folder is gone ends within a minute."""
    memory = Path("/dev/shm")  # six times as quick to copy a database in
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * 2**30
    folder = Path(tempfile.mkdtemp(prefix="snapapp-test-", dir=memory if roomy else None))
    script = ["/bin/sh", "-c", 'cat >/dev/null; rm -rf "$1"', "sh", str(folder)]
    guard = subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield folder
    finally:
        guard.communicate()
