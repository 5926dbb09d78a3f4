"""A process that only a new one can help asks for it."""

from pathlib import Path

from snapapp.jobs import enqueue
from tests.factory import Db, scalar
from tests.running import Running


def test_a_worker_whose_threads_hang_ends_with_75_to_be_started_anew(url: str, db: Db, tmp_path: Path) -> None:
    """FD1."""
    enqueue(db, "hang", max_attempts=1)
    worker = Running(
        tmp_path,
        "worker",
        SNAPAPP_DATABASE_URL=url,
        SNAPAPP_PROCESSORS="tests.jobs.kinds.hanging",
        SNAPAPP_WORKER_MAX_STUCK="1",
    )
    try:
        assert worker.end() == 75
    finally:
        worker.process.kill()
    assert "ends to be started anew: 1 threads hang in jobs that ignore their deadline" in worker.said()
    assert scalar(db, "SELECT reason FROM job_worker_exit").endswith("ignore their deadline")


def test_a_worker_ends_although_a_coroutine_has_left_a_thread_hanging(url: str, db: Db, tmp_path: Path) -> None:
    job_id = enqueue(db, "hang.beside", max_attempts=1)
    worker = Running(
        tmp_path, "worker", "--drain", SNAPAPP_DATABASE_URL=url, SNAPAPP_PROCESSORS="tests.jobs.kinds.hanging"
    )
    try:
        assert worker.end() == 0
    finally:
        worker.process.kill()
    assert "Left without waiting for threads that do not end" in worker.said()
    assert scalar(db, "SELECT status FROM snap_processing_job WHERE id = %s", job_id) == "FAILED"
    assert scalar(db, "SELECT count(*) FROM job_worker_exit") == 1
