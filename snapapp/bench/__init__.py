"""`snapapp bench`: measures how fast the queue is on this machine. Beside each number it shows the limit, measured at
the same time.

`cli` is what the command calls. The scenarios are `enqueue`, `drain` (also beside other queues), `slots`,
`pickup`, `start`, `idle`, `claims`, `neighbours`, `steady` and `web`. They run on the databases of a `server`, with
`processes` (real ones, each in one of the `roles`), in the sizes of a `plan`, and make a `report`."""

from snapapp.bench.cli import add_arguments, command, run
from snapapp.bench.plan import Plan
from snapapp.bench.report import Measurement, Report

__all__ = ["Measurement", "Plan", "Report", "add_arguments", "command", "run"]
