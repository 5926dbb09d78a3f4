"""What the fleet costs and gains on this machine: `python -m tests.labs fleet --measure`."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from snapapp.jobs import enqueue_many
from snapapp.postgres.migrate import migrate
from tests.factory import Db, scalar
from tests.jobs.fleet.supervised import Start, Supervisor, plan, supervising, until_workers
from tests.jobs.working import until
from tests.labs.chaos.server import LabServer, guarded_folder

_LEFT = "SELECT count(*) FROM snap_processing_job WHERE status IN ('PENDING', 'RUNNING', 'RETRY_WAIT')"
_LEAN = {"children": 0, "commands": 0}


def report() -> Iterator[str]:
    cores = os.cpu_count() or 1
    with guarded_folder() as (folder, _):
        server = LabServer(folder)
        try:
            migrate(server.url)
            with server.connect() as db, supervising(folder, server.url) as start:
                yield from _memory(start, db)
                yield _throughput(start, db, "fleet.spin", 400 * cores, [1, cores], {"concurrency": 1}, "5 ms of CPU")
                yield _throughput(start, db, "fleet.nothing", 50_000, [1, 2], {"concurrency": 4}, "no work")
        finally:
            server.stop()


def _memory(start: Start, db: Db) -> Iterator[str]:
    shares = {}
    for size in (1, 8):
        it = start(plan(mail={"queues": ["default"], "max_processes": size, **_LEAN}))
        seen = until_workers(db, size, within=60)
        until(lambda seen=seen: all(pss(each.pid) for each in seen))  # type: ignore[misc]
        shares[size] = sum(pss(each.pid) for each in seen)
        if size == 8:
            yield f"supervisor {pss(it.process.pid):.0f} MB PSS"
        _end(it, db)
    each = (shares[8] - shares[1]) / 7
    yield f"each additional idle worker {each:.1f} MB PSS (1: {shares[1]:.0f}, 8: {shares[8]:.0f})"


def _throughput(
    start: Start, db: Db, kind: str, jobs: int, sizes: list[int], options: dict[str, int], what: str
) -> str:
    rates = []
    for size in sizes:
        it = start(plan(mail={"queues": ["default"], "max_processes": size, **_LEAN, **options}))
        until_workers(db, size, within=60)
        for _ in range(0, jobs, 10_000):
            enqueue_many(db, [{"kind": kind}] * min(jobs, 10_000))
        began = monotonic()
        until(lambda: scalar(db, _LEFT) == 0, within=600)
        rates.append(jobs / (monotonic() - began))
        _end(it, db)
    said = ", ".join(f"{size} workers {rate:,.0f}/s" for size, rate in zip(sizes, rates, strict=True))
    return f"{what}: {said}: {rates[-1] / rates[0]:.2f} times"


def _end(it: Supervisor, db: Db) -> None:
    it.process.terminate()
    it.end()
    until_workers(db, 0)


def pss(pid: int) -> float:
    found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
