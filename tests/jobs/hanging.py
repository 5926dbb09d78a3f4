"""A kind that ignores its deadline, for `snapapp worker` in a process of its own."""

import time
from datetime import timedelta

from snapapp.jobs import Job, processor


@processor("hang", timeout=timedelta(milliseconds=100))
def hang(job: Job) -> None:
    while True:
        time.sleep(1)
