"""Many worker processes on one host or many, where one process is not enough: kept alive, replaced, scaled, steered.

Read it in this order: `plan` (what should run), `pool` (what should be against what is), `children` and `nursery`
(where processes come from), `hand` and `tally` (the worker's side), `supervisor` (all of it, on the thread that has the
processes), `clerk` (its other thread, which has the database), `scaling` (how many, pure), `commands` and `history`
(every statement). docs/fleet.md is for people.
"""
