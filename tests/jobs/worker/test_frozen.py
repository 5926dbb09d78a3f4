"""A worker process that stood still for longer than a lease."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from snapapp.jobs import enqueue
from tests.factory import Db, row, scalar
from tests.jobs.working import until, until_status
from tests.running import Running

SECOND = {"SNAPAPP_JOB_LOCK_TTL_MS": "1000", "SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS": "100"}


def test_a_worker_that_stood_still_takes_its_leases_for_lost_by_its_own_clock(
    run: Callable[..., Running], tmp_path: Path, url: str, db: Db
) -> None:
    """FB7: nobody has taken the job meanwhile, so the database would let it go on."""
    said = tmp_path / "said"
    worker = run(
        "worker",
        "--processors",
        "tests.jobs.kinds.frozen",
        SNAPAPP_DATABASE_URL=url,
        SNAPAPP_JOB_RECOVERY_INTERVAL_MS="60000",
        SAID=str(said),
        **SECOND,
    )
    job_id = enqueue(db, "frozen.patient")
    assert job_id
    until_status(db, job_id, "RUNNING")
    until(lambda: scalar(db, "SELECT count(*) FROM job_worker WHERE current_jobs <> '{}'"))
    os.kill(worker.process.pid, signal.SIGSTOP)
    until(lambda: scalar(db, f"SELECT lock_expires_at < now() FROM snap_processing_job WHERE id = {job_id}"))
    Event().wait(0.5)  # a beat that was on its way has extended nothing since
    assert not said.exists()
    os.kill(worker.process.pid, signal.SIGCONT)
    until(lambda: said.exists() and said.read_text())
    assert said.read_text().startswith("LeaseLost: ")
    assert row(db, job_id).attempt_count == 1


@pytest.mark.parametrize("kind", ["frozen.hook", "frozen.commit"])
def test_a_worker_that_stood_still_in_a_hook_charges_no_attempt(
    run: Callable[..., Running], tmp_path: Path, url: str, db: Db, kind: str
) -> None:
    """The server has ended the transaction, because nobody may hold a row's lock for ever."""
    said = tmp_path / "said"
    worker = run("worker", "--processors", "tests.jobs.kinds.frozen", SNAPAPP_DATABASE_URL=url, SAID=str(said))
    job_id = enqueue(db, kind, max_attempts=1)
    assert job_id
    until(lambda: said.exists() and said.read_text())
    os.kill(worker.process.pid, signal.SIGSTOP)
    until(lambda: scalar(db, f"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {said.read_text()}"))
    said.write_text("gone")
    os.kill(worker.process.pid, signal.SIGCONT)
    done = until_status(db, job_id, "COMPLETED", "FAILED")
    assert (done.status, done.errors) == ("COMPLETED", [])
