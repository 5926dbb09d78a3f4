"""`python -m tests.labs sources`. Prints what two seconds of a 1 GB video cost, wherever they are; exits
1 when they cost more than a hundredth of the bytes or 30 requests."""

import argparse

from snapapp.sources.limits import MIB
from tests.labs.sources import lab


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1024, help="the size of the video")
    parser.add_argument("--mbit", type=float, default=8, help="its bits a second")
    parser.add_argument("--moments", type=int, default=5)
    arguments = parser.parse_args()
    dear = 0
    for cost in lab.run(arguments.mb * MIB, arguments.moments, arguments.mbit):
        print(cost, flush=True)
        dear += cost.is_dear
    return 1 if dear else 0
