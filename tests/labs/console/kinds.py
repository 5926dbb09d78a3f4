"""What the workers of these labs run."""

import os
import signal
import time
import urllib.request
from datetime import timedelta

from snapapp.jobs import Job, processor
from snapapp.jobs.rows.database import Db


@processor("lab.noop")
def noop(_job: Job) -> None: ...


@processor("lab.poison", executor="process")
def poison(_job: Job) -> None:
    """Whoever runs it dies."""
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_db: Db, _job: Job, _result: object) -> None:
    time.sleep(600)


@processor("lab.stuck", timeout=timedelta(seconds=1), commit=_hang)
def stuck(_job: Job) -> None: ...


@processor("lab.deliver", max_attempts=20)
def deliver(_job: Job) -> None:
    """To a receiver that nobody has started."""
    urllib.request.urlopen("http://127.0.0.1:9/", timeout=2)


@processor("lab.slow", timeout=timedelta(minutes=9))
def slow(_job: Job) -> None:
    time.sleep(300)
