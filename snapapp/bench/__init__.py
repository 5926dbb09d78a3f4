"""`snapapp bench`: how fast the queue is on this box, each number with the limit that was measured beside it.

`cli` is what the command calls. The scenarios are `enqueue`, `drain` (memory and peers too), `pickup`, `start`, `idle`
and `claims`; they run on a `ground`, with `players` (real processes, each in one of the `roles`), as much as a `plan`
says, and end up in a `report`.
"""

from snapapp.bench.cli import add_arguments, command, run
from snapapp.bench.plan import Plan
from snapapp.bench.report import Measurement, Report

__all__ = ["Measurement", "Plan", "Report", "add_arguments", "command", "run"]
