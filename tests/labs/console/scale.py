"""Each view of /ops on an installation with millions of rows: the time to the first byte of all that it asks, the
slowest of its statements, and what twenty viewers of the stream cost the process that serves them."""

import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from snapapp import postgres
from snapapp.postgres.migrate import migrate
from tests.labs.console import rows
from tests.labs.console.stage import Db, asked, connected
from tests.running import Served

FIRST_BYTE, STATEMENT, OF_A_CORE = 0.2, 50.0, 0.05  # s, ms, of the process that serves
_SLOW = 5  # ms, from which on a statement is written down
_ROUNDS = 7
_SETTLES_IN = 5.0  # seconds


@dataclass
class View:
    name: str
    path: str
    times: list[float] = field(default_factory=list)  # seconds, of each round
    statements: dict[str, list[float]] = field(default_factory=dict)  # ms, of those that were slow

    @property
    def first_byte(self) -> float:
        """The quickest: what else runs on the machine is not ours."""
        return min(self.times)

    @property
    def usual(self) -> float:
        return median(self.times)

    @property
    def slowest(self) -> tuple[float, str]:
        """Of its statements, each by its quickest time; one that was too quick to be written down once is quick."""
        known = [(min(times) if len(times) >= _ROUNDS else 0.0, said) for said, times in self.statements.items()]
        return max(known, default=(0.0, ""))


@dataclass
class Seen:
    rows: int
    bytes: int = 0
    views: list[View] = field(default_factory=list)
    quiet: float = 0.0  # of a core, with nobody watching
    watched: float = 0.0  # with twenty viewers
    events: int = 0  # that they were told

    def problems(self) -> Iterator[str]:
        for view in self.views:
            if view.first_byte > FIRST_BYTE:
                yield f"{view.name}: {view.path} took {view.first_byte * 1000:.0f} ms to its first byte"
            took, said = view.slowest
            if took > STATEMENT:
                yield f"{view.name}: {view.path} has a statement of {took:.0f} ms: {said[:200]}"
        if self.watched - self.quiet > OF_A_CORE:
            yield f"the viewers cost {self.watched - self.quiet:.1%} of a core"
        if not self.events:
            yield "the viewers were told nothing"


def say(words: str) -> None:
    sys.stderr.write(f"\r\033[K{words}")
    sys.stderr.flush()


def run(finished: int, ready: int, viewers: int, seconds: float, at: Path | None = None) -> Seen:
    seen = Seen(finished + ready)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-console-", dir=at)))
        server = stack.enter_context(postgres.start(folder / "postgres", create=True))
        migrate(server.url)
        db = stack.enter_context(connected(server.url))
        db.execute("ALTER SYSTEM SET max_wal_size = '4GB'")
        db.execute("SELECT pg_reload_conf()")
        rows.fill(db, finished, ready, say)
        seen.bytes = asked(db, "SELECT pg_database_size(current_database())")
        settings = {"SNAPAPP_DATABASE_URL": server.url, "SNAPAPP_WORKER_ENABLED": "false", "SNAPAPP_DEMO": "false"}
        served = Served(folder, **settings)
        stack.callback(served.process.kill)
        served.until_up()
        sleep(_SETTLES_IN)
        seen.views = look(db, served, folder / "postgres" / "postgres.log")
        watch(db, served, viewers, seconds, seen)
    return seen


# --- the views --------------------------------------------------------------------------------------------------


def asked_by(db: Db, rows_: int) -> Iterator[View]:
    """What each view asks, as its script does."""
    whole = asked(db, "SELECT max(id) FROM snap_processing_job WHERE status = 'RUNNING'")
    failed = asked(db, "SELECT max(id) FROM snap_processing_job WHERE status = 'FAILED'")
    week, hour = (
        asked(db, f"SELECT to_char(now() - interval '{ago}', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")
        for ago in ("7 d", "1 h")
    )
    asks: Mapping[str, tuple[str, ...]] = {
        "now": ("queues", "history?over=1h", "failures", "history/kinds?over=1h", "doctor"),
        "jobs": (
            "jobs",
            *(
                f"jobs?status={status}"
                for status in ("PENDING", "RUNNING", "RETRY_WAIT", "COMPLETED", "FAILED", "CANCELLED")
            ),
            "jobs?kind=kind.3",
            "jobs?queue=queue-2&status=FAILED",
            "jobs?tenant=tenant-7",
            "jobs?kind=not.there",
            "jobs?status=FAILED&error=host-7",
            f"jobs?before={rows_ // 2}",
            f"jobs?finishedUntil={week}",
            f"jobs?status=FAILED&finishedFrom={week}&finishedUntil={hour}&kind=kind.7",
            "jobs?status=FAILED&kind=kind.7&errorLine=ConnectionError%3A%20host-7%20refused",
        ),
        "one job": (
            f"jobs/{whole}",
            f"jobs/{whole}/family",
            f"jobs/{whole}/graph",
            f"jobs/{failed}",
            f"audit?subject=job%20{failed}&limit=20",
        ),
        "queues": ("limits",),
        "history": (
            *(f"history?over={over}" for over in ("1h", "24h", "7d")),
            "history/kinds?over=7d",
            "history?over=7d&kind=kind.3",
        ),
        "schedules": ("schedules", "schedules/nightly.3", "schedules/nightly.3/preview"),
        "workers": ("workers", "fleet", "fleet/decisions?limit=20", "workers/exits?limit=20"),
        "box": ("box", "box/server"),
        "costs": ("costs",),
        "audit": ("audit?limit=50",),
    }
    return (View(name, f"/internal/{path}") for name, paths in asks.items() for path in paths)


def look(db: Db, served: Served, log: Path) -> list[View]:
    """One after the other, as one viewer's browser asks them."""
    views = list(asked_by(db, rows_=asked(db, "SELECT max(id) FROM snap_processing_job")))
    db.execute(f"ALTER SYSTEM SET log_min_duration_statement = {_SLOW}".encode())
    db.execute("SELECT pg_reload_conf()")
    sleep(1)
    for number in range(_ROUNDS + 1):  # the first one warms caches up
        for view in views:
            say(f"round {number + 1}: {view.path}")
            place = log.stat().st_size
            took = first_byte(served.port, view.path)
            if number:
                view.times.append(took)
                for said, milliseconds in slow(log, place):
                    view.statements.setdefault(said, []).append(milliseconds)
    db.execute("ALTER SYSTEM RESET log_min_duration_statement")
    db.execute("SELECT pg_reload_conf()")
    return views


def first_byte(port: int, path: str) -> float:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.connect()
        began = monotonic()
        connection.request("GET", path)
        answer = connection.getresponse()
        took = monotonic() - began
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:300])
        return took
    finally:
        connection.close()


_TOLD = re.compile(r"duration: ([0-9.]+) ms  (?:execute [^:]*|statement): (.*)", re.DOTALL)


def slow(log: Path, place: int) -> Iterator[tuple[str, float]]:
    """The lines that PostgreSQL has written since, a statement of several lines in one."""
    with log.open("rb") as file:
        file.seek(place)
        text = file.read().decode(errors="replace")
    for entry in re.split(r"^(?=\d{4}-\d\d-\d\d )", text, flags=re.MULTILINE):
        if (found := _TOLD.search(entry)) and " snapapp" in entry:
            yield " ".join(found[2].split()), float(found[1])


# --- the stream -------------------------------------------------------------------------------------------------


def watch(db: Db, served: Served, viewers: int, seconds: float, seen: Seen) -> None:
    """A job comes and goes five times a second, with and without viewers."""
    say(f"{seconds:.0f} s with nobody who watches")
    seen.quiet = spent(db, served, seconds)
    say(f"{seconds:.0f} s with {viewers} viewers")
    with watching(served.port, viewers) as told:
        sleep(_SETTLES_IN)
        told.clear()
        seen.watched = spent(db, served, seconds)
        seen.events = len(told)
    say("")


def spent(db: Db, served: Served, seconds: float) -> float:
    """Of a core, by the process that serves."""
    before, began = on_cpu(served.process.pid), monotonic()
    while monotonic() < began + seconds:
        db.execute("INSERT INTO snap_processing_job (kind) VALUES ('kind.1')")
        sleep(0.1)
        db.execute(
            "UPDATE snap_processing_job SET status = 'CANCELLED', finished_at = now(), lease_seq = lease_seq + 1"
            " WHERE id = (SELECT max(id) FROM snap_processing_job)"
        )
        sleep(0.1)
    return (on_cpu(served.process.pid) - before) / (monotonic() - began)


def on_cpu(pid: int) -> float:
    """Seconds, by the kernel's clock of the process and all its threads."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def watching(port: int, viewers: int) -> Iterator[list[bytes]]:
    """Each event that any of them is told."""
    told: list[bytes] = []
    connections: list[HTTPConnection] = []
    threads: list[threading.Thread] = []

    def listen(connection: HTTPConnection) -> None:
        with closing(connection), suppress(OSError, ValueError, AttributeError):  # it is shut down from this side
            connection.request("GET", "/internal/jobs/stream")
            with connection.getresponse() as answer:
                while line := answer.readline():
                    if line.startswith(b"event: job."):
                        told.append(line)

    for _ in range(viewers):
        connections.append(HTTPConnection("127.0.0.1", port, timeout=60))
        threads.append(threading.Thread(target=listen, args=[connections[-1]], daemon=True))
        threads[-1].start()
    try:
        yield told
    finally:
        for connection, thread in zip(connections, threads, strict=True):
            if connection.sock:
                connection.sock.shutdown(2)
            thread.join()


def room_for(finished: int) -> bool:
    """A row takes half a kilobyte with its indexes and the log of its making."""
    return shutil.disk_usage(tempfile.gettempdir()).free > finished * 1_500 + 5 * 2**30
