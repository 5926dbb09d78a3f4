"""Twelve defects that queues are known for, planted one by one in a copy of the house: the everyday tests must notice.

A test that has never failed proves little. `python -m tests.labs mutants` plants each, runs the tests that are there to
notice it, and exits 1 when one survives, or when these tests fail on the copy as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

_CLAIM, _LEASES, _SETTLE = (f"snapapp/jobs/rows/{name}.py" for name in ("claim", "leases", "settle"))
_FENCES = (" AND job.lease_seq = done.lease_seq", " AND job.lease_seq = its.lease_seq")
_ROWS, _WORKER = "tests/jobs/rows", "tests/jobs/worker/test_worker.py"


@dataclass(frozen=True, slots=True)
class Edit:
    file: str
    says: str
    instead: str


@dataclass(frozen=True, slots=True)
class Mutant:
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


MUTANTS = {
    "no-fence": Mutant(
        "whoever knows the id of a job may settle it",
        tuple(Edit(_SETTLE, fence, "") for fence in _FENCES),
        (f"{_ROWS}/test_settle.py",),
    ),
    "state-only-fence": Mutant(
        "the same as long as anybody runs it: attempt 1 ends attempt 2",
        tuple(Edit(_SETTLE, fence, " AND job.status = 'RUNNING'") for fence in _FENCES),
        (f"{_ROWS}/test_settle.py", f"{_ROWS}/test_queue_model.py"),
    ),
    "attempt-counted-on-failure": Mutant(
        "a run that kills its worker is never counted",
        (Edit(_CLAIM, "attempt_count = attempt_count + 1", "attempt_count = greatest(attempt_count, 1)"),),
        (f"{_ROWS}/test_recover.py",),
    ),
    "recovery-without-cap": Mutant(
        "a job whose attempts are used up is run again, and again",
        (Edit("snapapp/jobs/model.py", "return self.attempt > self.max_attempts", "return False"),),
        (f"{_ROWS}/test_recover.py",),
    ),
    "beat-in-the-transaction-of-the-job": Mutant(
        "what a running job's beat says is seen when the job has ended",
        (
            Edit(
                "snapapp/jobs/worker/heartbeat.py",
                "            for page in _pages(jobs, 1000):",
                "            for page in _pages([job for job in jobs if job.started_at is None], 1000):",
            ),
        ),
        (f"{_WORKER}::test_a_job_that_runs_for_longer_than_a_lease_keeps_it",),
    ),
    "clock-of-the-client": Mutant(
        "a host whose clock is an hour ahead takes every job from its worker",
        (
            Edit(_LEASES, "ELSE lock_expires_at < clock_timestamp()", "ELSE lock_expires_at < %(client)s"),
            Edit(_LEASES, '"running": None, "besides": []}', '"running": None, "besides": [], "client": _now()}'),
            Edit(_LEASES, '"worker": worker,', '"worker": worker, "client": _now(),'),
            Edit(
                _LEASES,
                "_BEAT = ",
                "def _now():\n    from datetime import UTC, datetime\n    return datetime.now(UTC)\n\n\n_BEAT = ",
            ),
        ),
        (f"{_ROWS}/test_recover.py",),
    ),
    "recovery-that-looks-first": Mutant(
        "which leases have ended is asked first, and the rows are taken later",
        (Edit(_LEASES, "ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED", "ORDER BY id LIMIT %(limit)s"),),
        (f"{_ROWS}/test_recover.py",),
    ),
    "effect-before-the-fence": Mutant(
        "a hook's effect is committed before it is known whether the result lands",
        (
            Edit(
                "snapapp/jobs/worker/finish.py",
                "    with transaction(job) as db:\n        status = settle.settle(db, finished)\n",
                "    if processor.commit and isinstance(finished.outcome, Succeeded):\n"
                "        with transaction(job) as db:\n"
                "            processor.commit(db, job, _decoded(finished.outcome))\n"
                "    with transaction(job) as db:\n        status = settle.settle(db, finished)\n",
            ),
        ),
        (_WORKER,),
    ),
    "name-not-on-disk": Mutant(
        "a file is there, its name is not, after the power was cut",
        (Edit("snapapp/storage/local.py", "                    os.fsync(folder)\n", ""),),
        ("tests/storage/test_local.py",),
    ),
    "unordered-batch": Mutant(
        "two who lock the same rows wait for each other in a circle",
        (Edit("snapapp/jobs/rows/bulk.py", "sorted(set(ids))", "list(dict.fromkeys(ids))"),),
        (f"{_ROWS}/test_bulk.py",),
    ),
    "children-outlive-their-worker": Mutant(
        "a worker that is killed leaves its children running",
        (
            Edit("snapapp/jobs/executors/child.py", "prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)", "prctl(0, 0)"),
            Edit("snapapp/jobs/executors/reaper.py", "kill -9", "kill -0"),
        ),
        ("tests/jobs/executors/test_children.py",),
    ),
    "more-than-the-limit": Mutant(
        "a claim takes what it has looked at, not what was asked for",
        (Edit(_CLAIM, "ARRAY(SELECT id FROM picked WHERE place <= at_most)", "ARRAY(SELECT id FROM picked)"),),
        (f"{_ROWS}/test_claim.py", f"{_ROWS}/test_limits.py"),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of them: {', '.join(MUTANTS)}")
    chosen = parser.parse_args().names or [*MUTANTS]
    if unknown := [name for name in chosen if name not in MUTANTS]:
        print(f"no mutant {', '.join(unknown)}", file=sys.stderr)
        return 2
    survivors = [name for name in chosen if not _is_noticed(name, MUTANTS[name])]
    print(f"{len(chosen) - len(survivors)}/{len(chosen)} mutants caught")
    return 1 if survivors else 0


def _is_noticed(name: str, mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        house = Path(folder) / "house"
        shutil.copytree(ROOT, house, ignore=shutil.ignore_patterns(".*", "__pycache__", "docs"))
        sound = _run(house, mutant.tests)
        if sound.returncode:
            print(f"{name}: its tests fail on the house as it is\n{sound.stdout[-2000:]}", flush=True)
            return False
        for edit in mutant.edits:
            _plant(house / edit.file, edit)
        began = time.monotonic()
        sick = _run(house, mutant.tests)
    failed = [line for line in sick.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = f"by {failed[0].split(' - ')[0].split('::')[-1]}" if failed else "by nothing: it survives"
    print(f"{name} ({mutant.what}): {time.monotonic() - began:.0f} s, {by}", flush=True)
    return sick.returncode == 1 and bool(failed)


def _plant(file: Path, edit: Edit) -> None:
    text = file.read_text()
    if edit.says not in text:
        raise ValueError(f"{edit.file} does not say {edit.says!r} any more")
    file.write_text(text.replace(edit.says, edit.instead))


def _run(house: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)
