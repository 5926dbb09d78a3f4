"""A lab: the service is restarted again and again behind its proxy, as a deploy does it, and clients notice nothing.
Between two processes systemd keeps the socket; here the lab does.

`python -m tests.labs deploys --times 100` prints what became of every request that went through the proxy (Caddy, from
the file that the box gets) and of every job. It needs caddy.
"""

import argparse
import random
import shutil
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import httpx

from snapapp.jobs import enqueue_many
from tests.jobs.working import until
from tests.labs import departures
from tests.labs.server import lab_server
from tests.ops.test_linode_proxies import caddy, running
from tests.running import Served, free_port
from tests.systemd import Systemd

_CLIENTS = 6
_ANSWERED_WITHIN = 120.0  # seconds, the client's own patience
_LONG_NAP = 2.0  # a job that the restart has to wait for


@dataclass
class Tally(departures.Tally):
    answers: Counter[int] = field(default_factory=Counter)
    longest_answer: float = 0.0
    longest_gap: float = 0.0  # from the signal until the next process serves


class Client(threading.Thread):
    """Somebody's browser: connections that stay, requests one after the other, half of them jobs."""

    def __init__(self, port: int, tally: Tally, lock: threading.Lock, seed: int) -> None:
        super().__init__(daemon=True)
        self._port, self._tally, self._lock = port, tally, lock
        self._random = random.Random(seed)
        self.over = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=_ANSWERED_WITHIN) as client:
            while not self.over.wait(self._random.uniform(0, 0.02)):
                began = monotonic()
                try:
                    answer = self._ask(client)
                except httpx.HTTPError as error:
                    self._note(0, f"{type(error).__name__} {error}", monotonic() - began)
                    continue
                self._note(answer.status_code, answer.text[:80], monotonic() - began)
                if answer.status_code == 201:
                    with self._lock:
                        self._tally.accepted.add(answer.json()["id"])

    def _ask(self, client: httpx.Client) -> httpx.Response:
        if self._random.random() < 0.5:
            return client.get("/internal/jobs?limit=5")
        nap = {"kind": "lab.nap", "payload": {"seconds": self._random.uniform(0.05, 0.3)}}
        return client.post("/internal/jobs", json=nap)

    def _note(self, status: int, said: str, took: float) -> None:
        with self._lock:
            self._tally.answers[status] += 1
            self._tally.longest_answer = max(self._tally.longest_answer, took)
            if not 200 <= status < 300:
                self._tally.broken.append(f"{status}: {said}")


def run(times: int, seed: int = 1) -> Tally:
    tally, chance = Tally(), random.Random(seed)
    with ExitStack() as stack:
        its = stack.enter_context(lab_server("deploys"))
        folder, url, db = its.folder, its.url, its.db
        db.execute("CREATE TABLE effect (job_id bigint)")
        upstream, port = free_port(), free_port()
        proxy = caddy(folder, port, f"127.0.0.1:{upstream}", waits=True)
        file = folder / "Caddyfile"  # the jobs' own routes are for the box only; here they are what clients ask for
        file.write_text(file.read_text().replace("respond @inside 404", ""))
        stack.enter_context(running(proxy, folder))
        systemd = Systemd(folder / "notify")
        stack.callback(systemd.close)
        served = start(systemd, folder, url, upstream)
        lock = threading.Lock()
        clients = [Client(port, tally, lock, chance.randrange(2**32)) for _ in range(_CLIENTS)]
        for client in clients:
            client.start()
        for _ in range(times):
            sleep(chance.uniform(0.5, 1.5))
            enqueue_many(db, [{"kind": "lab.nap", "payload": {"seconds": _LONG_NAP}, "priority": 1}])
            sleep(0.2)
            began = monotonic()
            served.signal(signal.SIGTERM)
            tally.codes[served.end()] += 1
            served = start(systemd, folder, url, upstream)
            tally.longest_gap = max(tally.longest_gap, monotonic() - began)
            tally.departures += 1
        sleep(1)
        for client in clients:
            client.over.set()
        for client in clients:
            client.join(_ANSWERED_WITHIN)
        # a hundred restarts of a busy machine leave thousands of jobs, of which it does twenty a second
        until(
            lambda: not db.execute("SELECT FROM snap_processing_job WHERE finished_at IS NULL").fetchall(), within=1800
        )
        departures.count(db, tally)
        served.signal(signal.SIGTERM)
        served.end()
    return tally


def start(systemd: Systemd, folder: Path, url: str, port: int) -> Served:
    settings = {"SNAPAPP_PROCESSORS": "tests.labs.departures", "SNAPAPP_PORT": str(port)}
    served = systemd.start(folder, SNAPAPP_DATABASE_URL=url, **settings)
    systemd.hears_of("READY=1")
    return served


def problems(tally: Tally) -> list[str]:
    found = departures.problems(tally)
    return found if tally.answers[201] else [*found, "no job was taken"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not shutil.which("caddy"):
        print("Caddy is not installed: apt install caddy")
        return 2
    tally = run(arguments.times, arguments.seed)
    print(f"{tally.departures} restarts, the longest {tally.longest_gap:.2f} s; exit codes {dict(tally.codes)}")
    print(f"answers {dict(tally.answers)}, broken {len(tally.broken)}, the longest {tally.longest_answer:.2f} s")
    print(f"jobs {dict(tally.jobs)}, effects {tally.effects}, doubles {tally.doubles}, charged {tally.charged}")
    found = problems(tally)
    print("\n".join(f"PROBLEM {problem}" for problem in found[:20]))
    return 1 if found else 0
