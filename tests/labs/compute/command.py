"""A lab: jobs on a Dask cluster of three machines (network namespaces), beside the same jobs in children here.

`python -m tests.labs compute` takes root, and some minutes. It prints
- the same 200 snaps both ways: how many files, and how many hashes differ;
- each way in which a job in a child goes wrong, and those whose reason on the cluster is another one;
- 300 jobs while nodes and the scheduler are killed: lost, landed twice, and the reasons that attempts failed with;
- how long it takes until a machine that is cut off counts as lost;
- what a place on the cluster adds to a job that does nothing, and what 1, 2 and 3 nodes do with jobs that compute,
  beside the forecast for them, for 10 and for 100.
It ends with 1 if a hash or a reason differs, or a job was lost or landed twice.
"""

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any

import httpx
import psycopg

from snapapp.jobs import enqueue, enqueue_many
from tests import ROOT
from tests.jobs.compute.clusters import Cluster
from tests.jobs.working import until, working
from tests.labs import stack as box
from tests.labs.compute import kinds, namespaces
from tests.labs.executors.kinds import BAD
from tests.labs.media import speed
from tests.labs.server import LabServer, lab_server
from tests.running import Served

Db = psycopg.Connection[Any]
_WITHIN = 900.0
_NODES = 3
_SLOTS = "6"
_PACE = {"SNAPAPP_CHILD_NICE": "0"}  # whatever else the machine does


class Farm:
    """The cluster, whose nodes each have a machine."""

    def __init__(self, cluster: Cluster, machines: list[tuple[str, ...]]) -> None:
        self.cluster = cluster
        self.machines = machines

    @property
    def typed(self) -> str:
        return self.cluster.typed

    def start(self, number: int, **environ: str) -> None:
        self.cluster.start_node(f"node{number}", within=self.machines[number], environ=_PACE | environ)

    def keep(self) -> None:
        """As whoever keeps services running: a node ends by itself when its scheduler is gone."""
        for number in range(_NODES):
            if self.cluster.nodes[f"node{number}"].poll() is not None:
                self.start(number)

    def stop(self, number: int) -> None:
        node = self.cluster.nodes.pop(f"node{number}")
        node.kill()
        node.wait()


@contextmanager
def farm(folder: Path, nodes: int = _NODES, **environ: str) -> Iterator[Farm]:
    with ExitStack() as stack:
        machines = stack.enter_context(namespaces.machines(_NODES))
        its = Farm(stack.enter_context(Cluster(folder, namespaces.HERE)), machines)
        its.cluster.start_scheduler()
        for number in range(nodes):
            its.start(number, **environ)
        its.cluster.until_nodes(nodes)
        yield its


# --- the same snaps -------------------------------------------------------------------------------------------------


def snaps(count: int) -> tuple[int, int]:
    """How many files, and how many of them differ."""
    with tempfile.TemporaryDirectory(prefix="snapapp-compute-") as folder:
        film = Path(folder) / "film.mp4"
        speed.child("make", film, "720")
        here, there = Path(folder) / "here", Path(folder) / "there"
        here.mkdir()
        there.mkdir()
        ours = _made(here, film, count)
        with farm(there, SNAPAPP_DATA_DIR=str(there)) as its:
            theirs = _made(there, film, count, SNAPAPP_COMPUTE=its.typed, SNAPAPP_WORKER_CHILDREN=_SLOTS)
    differing = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    return len(ours), len(differing)


def _made(folder: Path, film: Path, count: int, **settings: str) -> dict[tuple[int, str], str]:
    """The hash of each file of each snap."""
    with (
        Served(folder, SNAPAPP_DEMO="false", **settings).up() as served,
        httpx.Client(base_url=f"http://localhost:{served.port}", timeout=60) as api,
    ):
        video = box.upload(api, film)
        until(lambda: api.get(f"/v2/videos/{video}").json()["videoProbe"], within=_WITHIN)
        marked = [box.mark(api, video, 1.0 + number * 0.2) for number in range(count)]
        for snap in marked:
            until(lambda snap=snap: box.is_made(api, snap), within=_WITHIN)  # type: ignore[misc]
    return {
        (number, file.name): hashlib.sha256(file.read_bytes()).hexdigest()
        for number, snap in enumerate(marked)
        for file in folder.rglob(f"{snap}/*/*")
    }


# --- what goes wrong ------------------------------------------------------------------------------------------------


def reasons(its: Farm, on: LabServer) -> list[str]:
    """Kinds whose last error is not the one that it is in children."""
    wrong = [kind for kind in BAD if kind.startswith("process.")]
    with working(on.url, kinds.registry, children=_NODES, compute=its.typed):
        ids = {kind: enqueue(on.db, kind, max_attempts=1) for kind in wrong}
        _until_over(on.db)
    said = dict(on.db.execute("SELECT id, last_error FROM snap_processing_job").fetchall())
    return [f"{kind}: {said[ids[kind]]}" for kind in wrong if BAD[kind] not in said[ids[kind]]]


def killings(its: Farm, on: LabServer, jobs: int, seed: int) -> dict[str, Any]:
    """Jobs that count how often they landed, while nodes are killed and, once, the scheduler."""
    chance = random.Random(seed)
    on.db.execute("CREATE TABLE effect (job bigint)")
    killed = 0
    with working(on.url, kinds.registry, children=int(_SLOTS), compute=its.typed):
        enqueue_many(on.db, [{"kind": "lab.counted"}] * jobs)
        while _left(on.db):
            sleep(2)
            its.keep()
            if killed == 2:
                _kill_the_scheduler(its)
            elif killed < 6:
                victim = chance.randrange(_NODES)
                its.stop(victim)
                sleep(0.5)
                its.start(victim)
            killed += 1
        _until_over(on.db)
    landed = Counter(job for (job,) in on.db.execute("SELECT job FROM effect").fetchall())
    rows = on.db.execute(
        "SELECT id, status, attempt_count, errors FROM snap_processing_job WHERE kind = 'lab.counted'"
    ).fetchall()
    errors = Counter(each["error"].partition(": ")[0] for *_, told in rows for each in told)
    return {
        "jobs": len(rows),
        "not completed": sum(status != "COMPLETED" for _, status, *_ in rows),
        "never landed": sum(job not in landed for job, *_ in rows),
        "landed twice": sum(times > 1 for times in landed.values()),
        "attempts, at most": max(attempts for *_, attempts, _ in rows),
        "failed attempts": dict(errors),
    }


def _kill_the_scheduler(its: Farm) -> None:
    assert its.cluster.scheduler
    its.cluster.scheduler.kill()
    its.cluster.scheduler.wait()
    its.cluster.start_scheduler()
    sleep(1)
    its.keep()


def cut_off(its: Farm, on: LabServer) -> float:
    """Seconds until an attempt on a machine whose cable was pulled counts as failed."""
    with working(on.url, kinds.registry, children=1, compute=its.typed):
        job = enqueue(on.db, "process.brooding", max_attempts=1)
        began = "SELECT count(*) FROM job_log WHERE job_id = %s"
        until(lambda: on.db.execute(began, [job]).fetchone() != (0,), within=_WITHIN)
        since = monotonic()
        for machine in its.machines:  # one of them runs it
            namespaces.cut(machine)
        _until_over(on.db)
        return monotonic() - since


# --- how fast -------------------------------------------------------------------------------------------------------


def overhead(its: Farm, on: LabServer, jobs: int = 200) -> tuple[float, float]:
    """Milliseconds from enqueued to done of a job that does nothing, half of them: in a child, and on the cluster."""
    return _pace(on, jobs, child_nice=0), _pace(on, jobs, compute=its.typed)


def _pace(on: LabServer, jobs: int, **changes: Any) -> float:
    took = "SELECT extract(epoch FROM finished_at - created_at)::float8 * 1000 FROM snap_processing_job WHERE id = %s"
    seen: list[float] = []
    with working(on.url, kinds.registry, **changes):
        for number in range(jobs + 10):
            job = enqueue(on.db, "lab.nothing")
            _until_over(on.db)
            if number >= 10:  # the first ones start children
                [(ms,)] = on.db.execute(took, [job]).fetchall()
                seen.append(ms)
    return median(seen)


def throughput(its: Farm, on: LabServer, jobs: int) -> dict[int, float]:
    """Seconds that a burst takes, by how many nodes there are. They share the cores of this machine."""
    took = {}
    for nodes in (3, 2, 1):
        its.cluster.until_nodes(nodes)
        with working(on.url, kinds.registry, children=_NODES, compute=its.typed):
            for _ in range(2):  # children start with the first
                enqueue_many(on.db, [{"kind": "lab.nothing"}] * 6)
                _until_over(on.db)
            since = monotonic()
            enqueue_many(on.db, [{"kind": "lab.burn"}] * jobs)
            _until_over(on.db)
            took[nodes] = monotonic() - since
        its.stop(nodes - 1)
    return took


def forecast(folder: Path, jobs: int) -> str:
    load = folder / "load.toml"
    load.write_text(
        f'hours = 1\n[jobs."lab.burn"]\nevery_s = 3600\nat_once = {jobs}\nrun_s = {kinds.BURNS}\ncpu = 1.0\n'
    )
    words = ["simulate", str(load), "--boxes", "1,2,3,10,100", "--processes", "1", "--slots", "1", "--cores", "1"]
    said = subprocess.run(
        [sys.executable, "-m", "snapapp", *words], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return said.stdout


# --- all of it ------------------------------------------------------------------------------------------------------


def _left(db: Db) -> int:
    found = db.execute("SELECT count(*) FROM snap_processing_job WHERE finished_at IS NULL").fetchone()
    assert found
    return int(found[0])


def _until_over(db: Db) -> None:
    until(lambda: not _left(db), within=_WITHIN)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snaps", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--burst", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not namespaces.can_be_made():
        print("Machines are network namespaces: be root, and apt install iproute2")
        return 2
    with lab_server("compute") as on, farm(on.folder) as its:
        odd = reasons(its, on)
        print(f"reasons that differ: {odd or 'none'}", flush=True)
        seen = killings(its, on, arguments.jobs, arguments.seed)
        print(f"under kills: {seen}", flush=True)
        its.cluster.until_nodes(_NODES)
        child, place = overhead(its, on)
        print(f"a job that does nothing: {child:.1f} ms in a child, {place:.1f} ms on the cluster", flush=True)
        for nodes, took in sorted(throughput(its, on, arguments.burst).items()):
            print(f"{arguments.burst} jobs of {kinds.BURNS} s of a core on {nodes} nodes: {took:.1f} s", flush=True)
        print(forecast(on.folder, arguments.burst))
        its.start(0)
        its.cluster.until_nodes(1)
        print(f"a machine cut off counts as lost after {cut_off(its, on):.0f} s", flush=True)
    files, differing = snaps(arguments.snaps)
    print(f"{arguments.snaps} snaps both ways: {files} files, {differing} differ", flush=True)
    lost = seen["not completed"] + seen["never landed"] + seen["landed twice"]
    return 1 if odd or lost or differing or not files else 0
