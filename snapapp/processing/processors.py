"""Declares the product's job kinds. Whatever reads a video runs in a child process, because a hostile video may take
its decoder over.

Every worker and every child imports this module. So the modules that do the work are imported with the first job that
needs them (PyAV, Pillow, SQLAlchemy and the domain take 60 MB)."""

import asyncio
from datetime import timedelta
from typing import Any

from tenacity import wait_exponential, wait_fixed, wait_random_exponential

from snapapp.domain import kinds
from snapapp.jobs import Job, processor, scheduled
from snapapp.jobs.os.threads import in_a_thread
from snapapp.jobs.registry import later
from snapapp.processing import child_settings, scratch

_HEAVY, _LIGHT = "media", "light"  # two queues, so that a long clip never makes a probe wait


@processor(
    kinds.SNAP,
    queue=_HEAVY,
    executor="process",
    timeout=timedelta(minutes=5),
    commit=later("snapapp.processing.ends:publish"),
    failed=later("snapapp.processing.ends:fail_snap"),
)
def process_snap(job: Job) -> dict[str, Any]:
    """Makes the evidence of a snap: frames, a clip, and their descriptions."""
    from snapapp.processing import media_work

    return media_work.here().snap(job)


@processor(
    kinds.EXTRACT, queue=_HEAVY, executor="process", timeout=timedelta(minutes=1), max_attempts=2, wait=wait_fixed(1)
)
def extract_frames(job: Job) -> dict[str, Any]:
    """Makes the evidence of a moment for a waiting client, so a second attempt comes soon, and there is no third."""
    from snapapp.processing import media_work

    return media_work.here().frames(job)


@processor(
    kinds.PROBE,
    queue=_LIGHT,
    executor="process",
    timeout=timedelta(minutes=1),
    commit=later("snapapp.processing.ends:keep_probe"),
    failed=later("snapapp.processing.ends:keep_reason"),
)
def probe_video(job: Job) -> dict[str, Any]:
    """Describes a video, as soon as it is uploaded."""
    from snapapp.processing import media_work

    return media_work.here().probe(job)


_WITH_ITS_VIDEO = later("snapapp.processing.ends:forget_without_video")


@processor(
    kinds.PREVIEW,
    queue=_HEAVY,
    executor="process",
    timeout=timedelta(hours=1),
    commit=_WITH_ITS_VIDEO,
    failed=_WITH_ITS_VIDEO,
)
def make_preview(job: Job) -> None:
    """Makes a copy that every browser plays, with the timestamps of the original."""
    from snapapp.processing import media_work

    media_work.here().preview(job)


@processor(
    kinds.STILL,
    queue=_LIGHT,
    executor="process",
    timeout=timedelta(minutes=1),
    max_attempts=2,
    commit=_WITH_ITS_VIDEO,
    failed=_WITH_ITS_VIDEO,
)
def take_still(job: Job) -> None:
    """Takes one frame, for stepping through a video."""
    from snapapp.processing import media_work

    media_work.here().still(job)


_send = later("snapapp.processing.webhook_delivery:send")


@processor(
    kinds.WEBHOOK,
    queue=_LIGHT,
    timeout=timedelta(seconds=30),
    max_attempts=10,
    wait=wait_random_exponential(multiplier=5, max=timedelta(hours=1)),  # ten attempts take about two hours
)
async def call_webhook(job: Job) -> Any:
    """Each on a thread of its own, because a receiver that accepts and says nothing would keep all other jobs waiting.
    Nobody waits for the thread of a job that was stopped; a process that ends does not either."""
    return await asyncio.wrap_future(in_a_thread("webhook", _send, job))


processor(
    kinds.FORGET,
    queue=_LIGHT,
    max_attempts=80,  # three days: a bucket may be away for a weekend, and the sweep may leave many files alone
    wait=wait_exponential(multiplier=10, max=timedelta(hours=1)),
)(later("snapapp.processing.sweep:forget"))

scheduled(cron="30 3 * * *", name=kinds.SWEEP, timeout=timedelta(hours=1))(
    later("snapapp.processing.sweep:sweep_storage")
)


@scheduled(every=timedelta(minutes=1), scope="process")
def sweep_scratch() -> None:
    """Removes the folders of killed child processes. The next job would remove them too, but it may be a long time
    until there is one."""
    scratch.sweep(child_settings.settings().data_dir / "scratch")
