"""The lab's command: `python -m tests.sources`. Prints what two seconds of a 1 GB video cost, wherever they are; exits
1 when they cost more than a hundredth of the bytes or 30 requests."""

import argparse
import sys

from snapapp.sources.limits import MIB
from tests.sources import lab


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sources", description=__doc__)
    parser.add_argument("--mb", type=int, default=1024, help="the size of the video")
    parser.add_argument("--mbit", type=float, default=8, help="its bits a second")
    parser.add_argument("--moments", type=int, default=5)
    arguments = parser.parse_args()
    dear = 0
    for cost in lab.run(arguments.mb * MIB, arguments.moments, arguments.mbit):
        print(cost, flush=True)
        dear += cost.is_dear
    return 1 if dear else 0


if __name__ == "__main__":
    sys.exit(main())
