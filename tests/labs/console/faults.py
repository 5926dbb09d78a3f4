"""Ten faults, set up for real one after the other. Of each must be told in words, on /ops (what the doctor's panel
asks), in `snapapp top` and by `snapapp doctor`: what is wrong, and what to do. Prints how long it took to be told."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from snapapp import postgres
from snapapp.jobs.adding import enqueue, enqueue_many
from snapapp.postgres.migrate import migrate
from tests import ROOT
from tests.jobs.working import until
from tests.labs.console.stage import Db, asked, connected, worker_process
from tests.running import Running, Served

WITHIN = 120.0  # seconds, in which whoever is on call must know; a hook alone is given 90 before it counts as stuck
_FOR_A_HOOK = 150.0


@dataclass
class Installation:
    """What a fault is done to."""

    folder: Path
    url: str
    db: Db
    settings: dict[str, str]


@dataclass(frozen=True)
class Fault:
    name: str
    finding: str
    cause: str  # as its words have it, a regular expression
    cure: str
    beside: Callable[[Installation], AbstractContextManager[None]]  # the fault, as long as this lasts
    within: float = WITHIN
    has_worker: bool = True


@dataclass
class Told:
    fault: str
    after: float = 0.0  # seconds, until the page told it
    said: str = ""
    do: str = ""
    missing: list[str] = field(default_factory=list)  # where it is not told, or not in words


# --- the faults -------------------------------------------------------------------------------------------------


@contextmanager
def a_poison_kind(installation: Installation) -> Iterator[None]:
    enqueue_many(installation.db, [{"kind": "lab.poison", "max_attempts": 1}] * 3)
    yield


@contextmanager
def a_stuck_hook(installation: Installation) -> Iterator[None]:
    enqueue(installation.db, "lab.stuck", max_attempts=1)
    yield


@contextmanager
def a_forgotten_pause(installation: Installation) -> Iterator[None]:
    installation.db.execute("SELECT pause_queue('mail', 'the server is being moved', 'ana')")
    installation.db.execute("UPDATE job_queue SET paused_at = now() - interval '2 days'")
    enqueue(installation.db, "lab.noop", queue="mail")
    yield
    installation.db.execute("SELECT resume_queue('mail')")


@contextmanager
def a_limit_too_low(installation: Installation) -> Iterator[None]:
    installation.db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('key:camera', 1)")
    enqueue_many(installation.db, [{"kind": "lab.slow", "concurrency_key": "camera"}] * 3)
    yield
    installation.db.execute("DELETE FROM job_limit")
    installation.db.execute(
        "SELECT cancel_job(id) FROM snap_processing_job WHERE kind = 'lab.slow' AND finished_at IS NULL"
    )


@contextmanager
def a_full_disk(installation: Installation) -> Iterator[None]:
    """As far as anybody can tell without filling this one: the floor is above what is free."""
    free = shutil.disk_usage(installation.folder).free // 2**20
    installation.settings["SNAPAPP_DISK_FREE_MIN_MB"] = str(free + 10_000)
    yield
    del installation.settings["SNAPAPP_DISK_FREE_MIN_MB"]


@contextmanager
def a_pinned_xmin(installation: Installation) -> Iterator[None]:
    with connected(installation.url) as other:
        other.execute("SET application_name = 'a forgotten console'")
        other.execute("SET idle_in_transaction_session_timeout = 0")  # else the embedded server ends it after a minute
        other.execute("BEGIN")
        other.execute("SELECT pg_current_xact_id()")
        yield


@contextmanager
def a_dead_worker(installation: Installation) -> Iterator[None]:
    """With a job in its hands, and nobody alive who would take it back."""
    with worker_process(installation.folder, installation.url) as worker:
        job = enqueue(installation.db, "lab.slow")
        until(lambda: asked(installation.db, "SELECT status FROM snap_processing_job WHERE id = %s", job) == "RUNNING")
        worker.signal(signal.SIGKILL)
        worker.end()
        yield


@contextmanager
def a_lost_schedule(installation: Installation) -> Iterator[None]:
    """The code that declared it was taken out with the last release."""
    installation.db.execute("INSERT INTO job_schedule (name, spec) VALUES ('reports.nightly', '0 3 * * *')")
    yield
    installation.db.execute("DELETE FROM job_schedule WHERE name = 'reports.nightly'")


@contextmanager
def a_receiver_away(installation: Installation) -> Iterator[None]:
    enqueue_many(installation.db, [{"kind": "lab.deliver"}] * 5)
    yield


@contextmanager
def a_slow_query(installation: Installation) -> Iterator[None]:
    script = (
        "import psycopg, sys; psycopg.connect(sys.argv[1]).execute('SELECT count(*), pg_sleep(600) FROM job_worker')"
    )
    named = f"{installation.url}{'&' if '?' in installation.url else '?'}application_name=report"
    with subprocess.Popen([sys.executable, "-c", script, named], stderr=subprocess.DEVNULL) as process:
        yield
        process.kill()


FAULTS = (
    Fault("a stuck hook", "SLOT_HANGS", r"ignore their deadline.*lab\.stuck", "time limit", a_stuck_hook, _FOR_A_HOOK),
    Fault("a poison kind", "DEAD_LETTERS", r"lab\.poison: 3.*(signal 9|killed)", "retry", a_poison_kind),
    Fault("a paused queue forgotten", "QUEUE_PAUSED", "mail has been paused for 2 days", "resume", a_forgotten_pause),
    Fault("a limit too low", "LIMIT_FULL", "limit key:camera lets 1 of key:camera", "set it anew", a_limit_too_low),
    Fault("a full disk", "DISK_LOW", "are free at .*less than the floor", "Make room", a_full_disk),
    Fault("a pinned xmin", "XMIN_HELD", "a forgotten console.*idle in transaction", "end it", a_pinned_xmin),
    Fault(
        "a dead worker",
        "WORKER_OVERDUE",
        "its process is gone; it holds 1",
        "clear it away",
        a_dead_worker,
        has_worker=False,
    ),
    Fault("a schedule that never fires", "SCHEDULE_UNDECLARED", r"reports\.nightly", "Start a worker", a_lost_schedule),
    Fault("a receiver that is down", "MOSTLY_REPEATED", r"lab\.deliver fail.*refused", "Is that up", a_receiver_away),
    Fault("a slow query", "XMIN_HELD", "report, role.*active.*pg_sleep", "end it", a_slow_query),
)


# --- who is told ------------------------------------------------------------------------------------------------


def run(only: str | None = None) -> list[Told]:
    return [tell(fault) for fault in FAULTS if only is None or only in fault.name]


def tell(fault: Fault) -> Told:
    """Each in an installation of its own, so that none is taken for another's."""
    told = Told(fault.name)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-faults-")))
        server = stack.enter_context(postgres.start(folder / "postgres", create=True))
        migrate(server.url)
        db = stack.enter_context(connected(server.url))
        settings = {"SNAPAPP_DATABASE_URL": server.url, "SNAPAPP_WORKER_ENABLED": "false", "SNAPAPP_DEMO": "false"}
        settings |= {"SNAPAPP_JOB_LOCK_TTL_MS": "6000", "SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS": "1000"}
        installation = Installation(folder, server.url, db, settings)
        if fault.has_worker:
            stack.enter_context(killed_in_the_end(folder, server.url))
            until(lambda: asked(db, "SELECT count(*) FROM job_worker") == 1)
        with fault.beside(installation):
            served = Served(folder, **installation.settings)
            stack.callback(served.process.kill)
            served.until_up()
            hear(fault, installation, served, told)
    return told


@contextmanager
def killed_in_the_end(folder: Path, url: str) -> Iterator[Running]:
    """It may well not be able to leave by itself."""
    with worker_process(folder, url) as worker:
        try:
            yield worker
        finally:
            worker.process.kill()


def hear(fault: Fault, installation: Installation, served: Served, told: Told) -> None:
    began = monotonic()
    while not (found := on_ops(fault, served)) and monotonic() < began + fault.within:
        sleep(1)
    told.after = monotonic() - began
    if not found:
        told.missing.append("on /ops")
        return
    told.said, told.do = found["saw"], f"{found['why']} {found['do']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")}
    for where, command in (("by the doctor", ["doctor"]), ("in top", ["top", "doctor", "--once"])):
        done = subprocess.run(
            [sys.executable, "-m", "snapapp", *command],
            cwd=ROOT,
            env=environment | installation.settings | {"SNAPAPP_DATA_DIR": str(installation.folder), "COLUMNS": "1000"},
            capture_output=True,
            text=True,
            check=False,
        )
        said = " ".join(done.stdout.split())
        told.missing += [
            f"{where}: the {what}" for what in ("cause", "cure") if not re.search(getattr(fault, what), said)
        ]


def on_ops(fault: Fault, served: Served) -> dict[str, str] | None:
    """What the panel of the doctor asks for, where both stand in it."""
    answer = served.ask("/internal/doctor?anew=true")
    findings: list[dict[str, str]] = answer.body["findings"] if answer.status == 200 else []
    for each in findings:
        if (
            each["id"] == fault.finding
            and re.search(fault.cause, each["saw"])
            and re.search(fault.cure, json.dumps(each))
        ):
            return each
    return None
