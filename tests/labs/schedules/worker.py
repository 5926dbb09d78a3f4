"""One of the lab's workers: `python -m tests.labs.schedules.worker URL [MUTANT]`, until SIGTERM or the lab is gone."""

import os
import sys
import threading
from datetime import timedelta
from functools import partial

from snapapp.jobs.model import Job
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.schedules import scheduler
from snapapp.jobs.settings import JobsSettings
from tests.labs.schedules.mutants import MUTANTS

LOOK_EVERY = 0.2  # seconds: nobody tells it that the server's clock was stepped


def registry() -> Registry:
    """All of them by name, so that `week` can ask for the slots of each."""
    declared = Registry()
    schedule = partial(declared.scheduled, max_attempts=20)  # the killer often meets the same job three times
    daily = schedule(cron="30 2 * * *", tz="Europe/Berlin", name="daily")
    again = schedule(cron="30 2 * * *", tz="America/New_York", name="elsewhere", missed="skip")
    hourly = schedule(cron="15 * * * *", tz="Europe/Berlin", name="hourly", missed="all", at_most=3)
    weekdays = schedule(cron="0 */4 * * 1-5", tz="Australia/Lord_Howe", name="weekdays", overlap=True)
    aligned = schedule(every=timedelta(minutes=30), name="aligned")
    for declare in (daily, again, hourly, weekdays, aligned):
        declare(run)
    return declared


def run(job: Job) -> dict[str, str]:
    if job.kind == "aligned" and ":00:" in job.payload["slot"]:
        # somebody must be killed at work, and some slots must find the job before them unended; not by time.sleep,
        # which libfaketime breaks (its wait is until a moment, which must not lie in the past)
        threading.Event().wait(0.3)
    return {"slot": job.payload["slot"]}


def main(url: str, mutant: str | None = None) -> None:
    if mutant:
        MUTANTS[mutant][0]()
    scheduler.LOOK_EVERY = LOOK_EVERY
    settings = JobsSettings(
        database_url=url,
        # the server's clock jumps by hours: leases must not end by that
        lease_for=timedelta(days=300),
        beat_every=timedelta(seconds=1),
        poll_delay=timedelta(milliseconds=200),
        recover_every=timedelta(seconds=1),
        concurrency=2,
        async_concurrency=1,
        children=0,
    )
    runtime = Runtime(settings, registry=registry())
    worker = runtime.worker()
    lab = os.getppid()
    with Signals() as signals:
        worker.start()
        while not signals.take() and os.getppid() == lab:
            signals.wait(0.2)
        worker.stop(grace=timedelta(seconds=1))
        runtime.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
