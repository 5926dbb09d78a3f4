"""A lab: the machine with PostgreSQL dies under load, and a synchronous standby takes its place.

`python -m tests.labs failover --times 3` prints what became of the jobs whose commit was acknowledged, and how long it
took from the promotion until a job was done again. The process that serves and two workers have one address with both
hosts in it, as docs/operate/postgresql.md has it. It needs PostgreSQL's own programs below /usr/lib/postgresql.
"""

import argparse
import os
import pwd
import signal
import subprocess
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg
import sqlalchemy

from snapapp.jobs import Job, enqueue, processor
from snapapp.jobs.os.processes import children
from tests.conftest import OLDEST, PROGRAMS, guarded_folder
from tests.jobs.working import until
from tests.running import Running, Served, free_port

_FAILS_AFTER = 5.0  # seconds of load
_GOES_ON_FOR = 5.0  # after the promotion
_PAUSE = 0.005  # of the client, between two jobs
_UP_WITHIN = 60.0
_DONE_WITHIN = 120.0


def _store(db: sqlalchemy.Connection, job: Job, _result: Any) -> None:
    db.execute(sqlalchemy.text("INSERT INTO effect VALUES (:number)"), {"number": job.payload["number"]})


@processor("lab.counted", commit=_store, max_attempts=20)
def count(_: Job) -> None:
    sleep(0.005)


@dataclass
class Seen:
    acknowledged: int = 0
    unsure: int = 0  # the line broke while the commit was on its way
    lost: list[int] = field(default_factory=list)  # acknowledged, and never done
    doubled: list[int] = field(default_factory=list)
    not_completed: int = 0
    promoted_after: float = 0.0  # from the kill
    back_after: float = 0.0  # from the promotion to the end of the next job
    healthy_after: float = 0.0  # likewise, to the first 200 of health
    enqueues_after: float = 0.0  # likewise, to the next job that was taken


class Server:
    """One PostgreSQL of the system's, on a port of its own."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.port = free_port()
        self._folder, self._programs = folder, programs
        self._who: dict[str, Any] = {"cwd": folder, "start_new_session": True}
        if os.geteuid() == 0:  # which PostgreSQL refuses
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._who |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def copy(self, other: "Server") -> None:
        """A standby of the other one."""
        self._run("pg_basebackup", "-D", "data", "-R", "-c", "fast", "--no-sync", "-d", other.url)

    def start(self, *switches: str) -> None:
        command = [str(self._programs / "postgres"), "-D", "data", "-k", str(self._folder), "-p", str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *switches], stdout=log, stderr=log, **self._who)
        until(self._answers, within=_UP_WITHIN)

    def kill(self) -> None:
        """As a machine dies: nobody says good-bye."""
        for pid in (self._process.pid, *children(self._process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def ask(self, query: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as db:
            found = db.execute(query.encode())
            return found.fetchall() if found.description else []

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            self.ask("SELECT")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([str(self._programs / program), *arguments], check=True, capture_output=True, **self._who)


class Client:
    """Enqueues, one job a transaction, whatever happens, and knows which of them were acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[int, float] = {}
        self.unsure = 0
        self._url = url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="client")
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=3) as db:
                    while not self._is_over.wait(_PAUSE):
                        number += 1
                        enqueue(db, "lab.counted", {"number": number})
                        self.acknowledged[number] = monotonic()
            except psycopg.Error:
                self.unsure += 1
                sleep(0.1)


def run(programs: Path) -> Seen:
    seen = Seen()
    with ExitStack() as stack:
        first, second, ours = [stack.enter_context(guarded_folder()) for _ in range(3)]
        primary, standby = Server(first, programs), Server(second, programs)
        primary.make()
        primary.start()
        primary.ask("CREATE TABLE effect (number bigint)")
        standby.copy(primary)
        standby.start()
        stack.callback(standby.stop)
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")  # the standby, made before, has none
        primary.ask("SELECT pg_reload_conf()")
        until(lambda: primary.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)])

        url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        url += "?target_session_attrs=read-write"
        settings = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_PROCESSORS": "tests.labs.failover", "SNAPAPP_DEMO": "false"}
        served = Served(ours, **settings)
        stack.callback(served.process.kill)
        served.until_up()
        for _ in range(2):
            stack.callback(Running(ours, "worker", **settings).process.kill)
        client = Client(url)
        stack.callback(client.stop)
        sleep(_FAILS_AFTER)
        primary.kill()
        _fail_over(standby, served, client, seen)
        sleep(_GOES_ON_FOR)
        client.stop()
        _judge(standby, client, seen)
    return seen


def _fail_over(standby: Server, served: Served, client: Client, seen: Seen) -> None:
    killed_at = monotonic()
    standby.ask("SELECT pg_promote()")
    until(lambda: standby.ask("SELECT pg_is_in_recovery()") == [(False,)], within=_UP_WITHIN)
    promoted_at = monotonic()
    seen.promoted_after = promoted_at - killed_at
    done = _done(standby)
    until(lambda: _done(standby) > done, within=_UP_WITHIN)
    seen.back_after = monotonic() - promoted_at
    until(lambda: served.ask("/actuator/health").status == 200, within=_UP_WITHIN)
    seen.healthy_after = monotonic() - promoted_at
    until(lambda: max(client.acknowledged.values()) > promoted_at, within=_UP_WITHIN)
    seen.enqueues_after = min(at for at in client.acknowledged.values() if at > promoted_at) - promoted_at


def _done(server: Server) -> int:
    return int(server.ask("SELECT count(*) FROM effect")[0][0])


def _judge(server: Server, client: Client, seen: Seen) -> None:
    left = "SELECT count(*) FROM snap_processing_job WHERE kind = 'lab.counted' AND finished_at IS NULL"
    until(lambda: server.ask(left) == [(0,)], within=_DONE_WITHIN)
    effects = dict(server.ask("SELECT number, count(*) FROM effect GROUP BY number"))
    seen.acknowledged, seen.unsure = len(client.acknowledged), client.unsure
    seen.lost = [number for number in client.acknowledged if number not in effects]
    seen.doubled = [number for number, times in effects.items() if times > 1]
    [(seen.not_completed,)] = server.ask(
        "SELECT count(*) FROM snap_processing_job WHERE kind = 'lab.counted' AND status <> 'COMPLETED'"
    )


def is_well(seen: Seen) -> bool:
    return seen.acknowledged > 0 and not seen.lost and not seen.doubled and seen.not_completed == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    if OLDEST is None:
        print("There is no PostgreSQL below /usr/lib/postgresql: apt install postgresql")
        return 2
    results = []
    for _ in range(arguments.times):
        results.append(run(PROGRAMS[OLDEST]))
        print(results[-1], flush=True)
    return 0 if all(map(is_well, results)) else 1
