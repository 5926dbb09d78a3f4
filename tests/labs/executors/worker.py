"""A worker with the lab's kinds: `python -m tests.labs.executors.worker URL`, until it is killed."""

import signal
import sys

from tests.jobs.working import working
from tests.labs.executors import kinds

if __name__ == "__main__":
    with working(sys.argv[1], kinds.registry):
        signal.pause()
