"""Kinds that ignore their deadline, for `snapapp worker` in a process of its own."""

import asyncio
import time
from datetime import timedelta

from snapapp.jobs import Job, processor


@processor("hang", timeout=timedelta(milliseconds=100))
def hang(job: Job) -> None:
    while True:
        time.sleep(1)


@processor("hang.beside", timeout=timedelta(milliseconds=100))
async def hang_beside(job: Job) -> None:
    await asyncio.to_thread(hang, job)
