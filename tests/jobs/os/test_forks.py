import os
import signal
import time

import pytest

from snapapp.jobs.os.signals import Signals
from tests.factory import Db
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import forking
from tests.jobs.working import until_status, working


@pytest.mark.parametrize("kind", ["fork.thread", "fork.async", "fork.process"])
def test_what_a_job_forks_ends_where_the_function_ends_and_says_nothing_of_the_job(url: str, db: Db, kind: str) -> None:
    """It went on as a copy of the worker: it settled the job that its parent still ran, and never ended."""
    with working(url, forking.registry):
        for end, code in {"exit": 7, "raise": 1, "return": 0}.items():
            job = until_status(db, put(db, kind, payload={"end": end}, max_attempts=1), "COMPLETED")
            assert job.result == code


@pytest.mark.parametrize(("kind", "status"), [("fork.commit", "COMPLETED"), ("fork.failed", "FAILED")])
def test_what_a_hook_forks_ends_where_the_hook_ends_and_leaves_its_transaction_alone(
    url: str, db: Db, kind: str, status: str
) -> None:
    """It committed, or rolled back, on its parent's connection."""
    db.execute("CREATE TABLE effect (code integer)")
    ends = {"exit": 7, "raise": 1, "return": 0}
    with working(url, forking.registry):
        for end in ends:
            assert not until_status(db, put(db, kind, payload={"end": end}, max_attempts=1), status).losses
    assert db.execute("SELECT code FROM effect").fetchall() == [(code,) for code in ends.values()]


def test_a_process_that_is_forked_ends_by_a_signal_that_we_only_note() -> None:
    its_begin, begins = os.pipe()
    with Signals() as signals:
        pid = os.fork()
        if pid == 0:
            os.write(begins, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(its_begin, 1)
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert signals.noted == []
    os.close(its_begin)
    os.close(begins)
