"""A lab: the process that serves and works is told to stop, again and again, in the middle of everything.

`python -m tests.labs departures --times 100` prints what became of every request and every job. A few times are enough
to see that the lab itself works, and that is what `make test` does.
"""

import argparse
import json
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

import psycopg

from snapapp.jobs import Job, enqueue_many, processor
from tests.jobs.working import put_effect, until
from tests.labs.server import lab_server
from tests.running import Served

GRACE = 20.0
ENOUGH = Counter({"200": 6, "201": 1})  # answers that every life of the process gives, on the slowest machine, too


@processor("lab.nap", commit=put_effect)
def nap(job: Job) -> None:
    sleep(job.payload["seconds"])


# --- what clients see -------------------------------------------------------------------------------------------


@dataclass
class Departures:
    """All of them together."""

    departures: int = 0
    longest: float = 0.0
    codes: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)  # requests that began before the signal and got no whole answer
    left: list[int] = field(default_factory=list)  # processes that outlived their shutdown

    def problems(self) -> list[str]:
        found = [f"a request that began before the signal: {how}" for how in self.broken]
        wrong = {
            "departures took longer than the grace": int(self.longest > GRACE),
            "exit codes other than 0": sum(times for code, times in self.codes.items() if code),
            "processes outlived their shutdown": len(self.left),
        }
        return found + [f"{times} {what}" for what, times in wrong.items() if times]


@dataclass
class Tally(Departures):
    """What became of requests and jobs besides."""

    requests: Counter[str] = field(default_factory=Counter)  # that began before the signal, by status
    accepted: set[int] = field(default_factory=set)  # jobs for which a client heard 201
    jobs: Counter[str] = field(default_factory=Counter)  # by status, at the end
    effects: int = 0
    doubles: int = 0
    charged: int = 0  # jobs that a shutdown cost an attempt
    missing: int = 0  # jobs for which a client heard 201 and that are not there


class Client(threading.Thread):
    """Sends one request after the other, each on a connection of its own, until nobody listens any more."""

    def __init__(self, port: int, tally: Tally, lock: threading.Lock, *, seed: int, writes: bool) -> None:
        super().__init__(daemon=True)
        self._port, self._tally, self._lock = port, tally, lock
        self._random = random.Random(seed)
        self._writes = writes
        self.over = threading.Event()  # the signal was sent: what begins from now on may be refused

    def run(self) -> None:
        while not self.over.is_set():
            began_before = True
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=GRACE + 10) as connection:
                    began_before = not self.over.is_set()
                    self._hear(self._ask(connection), began_before)
            except OSError as error:
                if began_before and not isinstance(error, ConnectionRefusedError):
                    self._broken(f"{type(error).__name__} {error}")

    def _ask(self, connection: socket.socket) -> bytes:
        if not self._writes:
            connection.sendall(b"GET /internal/jobs?limit=5 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            sleep(self._random.uniform(0, 0.02))
        else:
            body = json.dumps({"kind": "lab.nap", "payload": {"seconds": self._random.uniform(0.05, 0.5)}}).encode()
            head = "POST /internal/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode())
            for start in range(0, len(body), 8):  # a body on a bad line
                connection.sendall(body[start : start + 8])
                sleep(self._random.uniform(0, 0.15))
        said = b""
        while piece := connection.recv(65536):
            said += piece
        return said

    def _hear(self, said: bytes, began_before: bool) -> None:
        head, _, body = said.partition(b"\r\n\r\n")
        status = head.split(b" ")[1].decode() if head.startswith(b"HTTP/1.1 ") else "nothing"
        whole = status.startswith("2") and json.loads(body) is not None
        with self._lock:
            if status == "201":
                self._tally.accepted.add(json.loads(body)["id"])
            if began_before:
                self._tally.requests[status] += 1
        if began_before and not whole:
            self._broken(f"answered {said[:80]!r}")

    def _broken(self, how: str) -> None:
        with self._lock:
            self._tally.broken.append(f"{'POST' if self._writes else 'GET'}: {how}")


def follow_stream(port: int, ended: threading.Event, path: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=GRACE + 10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        is_followed = connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        while connection.recv(65536):
            pass
    if is_followed:
        ended.set()


# --- the lab ----------------------------------------------------------------------------------------------------


class Leaver(Protocol):
    """Whoever sends requests until the signal was sent."""

    over: threading.Event

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


def depart(
    served: Served,
    tally: Departures,
    clients: Callable[[int, threading.Lock], Sequence[Leaver]],  # of a port; the lock is for the tally
    *,
    stream: str,
    busy_for: float,
    heard_enough: Callable[[], bool] = lambda: True,
) -> None:
    """One life of the process: up, busy for so long and until enough was heard from it, told to stop, gone."""
    try:
        port, stream_ended = served.until_up().port, threading.Event()
        threading.Thread(target=follow_stream, args=[port, stream_ended, stream], daemon=True).start()
        busy = clients(port, threading.Lock())
        for client in busy:
            client.start()
        sleep(busy_for)
        until(heard_enough, within=60)
        began = monotonic()
        for client in busy:
            client.over.set()
        served.signal(signal.SIGTERM)
        code = served.process.wait(timeout=GRACE + 10)
        took = monotonic() - began
        for client in busy:
            client.join(timeout=GRACE)
        if not stream_ended.wait(timeout=5):
            tally.broken.append("the stream did not end")
        tally.left += served.family()
    finally:
        served.process.kill()
        served.process.wait()
    tally.departures += 1
    tally.longest = max(tally.longest, took)
    tally.codes[code] += 1


def serve(url: str, folder: Path, **settings: str) -> Served:
    return Served(folder, SNAPAPP_DATABASE_URL=url, SNAPAPP_PROCESSORS="tests.labs.departures", **settings)


def busy_clients(port: int, lock: threading.Lock, *, tally: Tally, chance: random.Random) -> list[Client]:
    return [Client(port, tally, lock, seed=chance.randrange(2**32), writes=number < 4) for number in range(6)]


def has_heard_enough(tally: Tally, before: Counter[str]) -> bool:
    return not ENOUGH - (tally.requests - before)


def run(times: int, seed: int = 1) -> Tally:
    tally, chance = Tally(), random.Random(seed)
    with lab_server("departures") as its:
        its.db.execute("CREATE TABLE effect (job_id bigint)")
        for _ in range(times):
            naps = [{"kind": "lab.nap", "payload": {"seconds": chance.uniform(0.05, 0.5)}} for _ in range(20)]
            enqueue_many(its.db, naps)
            clients = partial(busy_clients, tally=tally, chance=chance)
            depart(
                serve(its.url, its.folder),
                tally,
                clients,
                stream="/internal/jobs/stream",
                busy_for=chance.uniform(0.5, 1.5),
                heard_enough=partial(has_heard_enough, tally, Counter(tally.requests)),
            )
        drain(its.url, its.folder, its.db)
        count(its.db, tally)
    return tally


def drain(url: str, folder: Path, db: psycopg.Connection[Any]) -> None:
    with serve(url, folder, SNAPAPP_WORKER_CONCURRENCY="20").up():
        left = "SELECT FROM snap_processing_job WHERE finished_at IS NULL LIMIT 1"
        until(lambda: not db.execute(left).fetchall(), within=300)


def count(db: psycopg.Connection[Any], tally: Tally) -> None:
    tally.jobs.update(dict(db.execute("SELECT status, count(*) FROM snap_processing_job GROUP BY status").fetchall()))
    [(tally.effects, distinct)] = db.execute("SELECT count(*), count(DISTINCT job_id) FROM effect").fetchall()
    tally.doubles = tally.effects - distinct
    [(tally.charged,)] = db.execute("SELECT count(*) FROM snap_processing_job WHERE attempt_count <> 1").fetchall()
    found = {row[0] for row in db.execute("SELECT id FROM snap_processing_job").fetchall()}
    tally.missing = len(tally.accepted - found)


def problems(tally: Tally) -> list[str]:
    wrong = {
        "jobs that did not complete": sum(tally.jobs.values()) - tally.jobs["COMPLETED"],
        "jobs whose effect is not there": tally.jobs["COMPLETED"] - (tally.effects - tally.doubles),
        "jobs that ran their commit twice": tally.doubles,
        "jobs that were charged an attempt": tally.charged,
        "jobs that a client was promised and that are missing": tally.missing,
    }
    return tally.problems() + [f"{times} {what}" for what, times in wrong.items() if times]


def asked_for(about: str | None, times: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--times", type=int, default=times)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def told(tally: Departures, besides: Sequence[str], problems: Sequence[str]) -> int:
    print(f"{tally.departures} departures, the longest {tally.longest:.2f} s of {GRACE:g} s; exit codes {tally.codes}")
    print("\n".join([*besides, *(f"PROBLEM {problem}" for problem in problems)]))
    return 1 if problems else 0


def main() -> int:
    arguments = asked_for(__doc__, times=100)
    tally = run(arguments.times, arguments.seed)
    besides = [
        f"requests that began before the signal: {dict(tally.requests)}, broken: {len(tally.broken)}",
        f"jobs {dict(tally.jobs)}, effects {tally.effects}, doubles {tally.doubles}, charged {tally.charged}",
    ]
    return told(tally, besides, problems(tally))
