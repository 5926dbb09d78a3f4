"""A job that asks whether it may go on, and writes down in the file SAID when it may not; hooks that stand still in
their transaction, once, until the server has ended it."""

import os
from pathlib import Path
from time import sleep
from typing import Any

from sqlalchemy import Connection

from snapapp.jobs import Job, processor


@processor("frozen.patient")
def patient(job: Job) -> str:
    if job.attempt > 1:
        return "a later attempt"
    while True:
        try:
            job.raise_if_cancelled()
        except Exception as error:
            Path(os.environ["SAID"]).write_text(f"{type(error).__name__}: {error}")
            raise
        sleep(0.02)


def stand_still(db: Connection, _job: Job, _result: Any) -> None:
    said, backend = Path(os.environ["SAID"]), "SELECT pg_backend_pid()"
    if said.exists():
        return
    db.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 100")
    said.write_text(str(db.exec_driver_sql(backend).scalar()))
    while said.read_text() != "gone":
        sleep(0.01)


def stand_still_before_a_statement(db: Connection, job: Job, result: Any) -> None:
    stand_still(db, job, result)
    db.exec_driver_sql("SELECT")


processor("frozen.commit", commit=stand_still)(lambda job: None)
processor("frozen.hook", commit=stand_still_before_a_statement)(lambda job: None)
