"""A worker in a process of its own with the lab's kinds: `python -m tests.executors.worker URL`, until it is killed."""

import signal
import sys

from tests.executors import kinds
from tests.jobs.working import working

if __name__ == "__main__":
    with working(sys.argv[1], kinds.registry):
        signal.pause()
