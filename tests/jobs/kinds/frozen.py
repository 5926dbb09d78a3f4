"""A job that asks whether it may go on, and writes down in the file SAID when it may not."""

import os
from pathlib import Path
from time import sleep

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
