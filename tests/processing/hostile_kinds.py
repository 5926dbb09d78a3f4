"""Jobs whose decoder was taken over, and the same tries in a child without a sandbox."""

import io
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from snapapp.jobs import Job
from snapapp.jobs.registry import Registry
from snapapp.processing.decoder.client import Decoders
from tests.processing import hostile

registry = Registry()
_decoders = Decoders(hostile.__name__)


@registry.processor("hostile.decoder", executor="process")
def decoder(job: Job) -> dict[str, Any]:
    order = job.payload
    with (
        Path(order["own_file"]).open("rb") as video,
        _decoders.run(f"{hostile.__name__}:attack", order, video, Path(order["scratch"]), job.update_progress) as made,
    ):
        return {"tried": made.told, "child": os.getpid(), "server": _decoders.pid}


@registry.processor("hostile.child", executor="process")
def child(job: Job) -> dict[str, str]:
    return hostile.attack(job.payload)


@registry.processor("hostile.crash", executor="process", max_attempts=1)
def crash(job: Job) -> None:
    with _decoders.run(f"{hostile.__name__}:dies", {}, io.BytesIO(b"video"), Path(job.payload["scratch"]), print):
        pass


@registry.processor("hostile.hang", executor="process", timeout=timedelta(seconds=4), max_attempts=1)
def hang(job: Job) -> None:
    with _decoders.run(f"{hostile.__name__}:hangs", {}, io.BytesIO(b"video"), Path(job.payload["scratch"]), print):
        pass


@registry.processor("hostile.pids", executor="process")
def pids(job: Job) -> list[int | None]:
    _decoders.start()
    return [os.getpid(), _decoders.pid]
