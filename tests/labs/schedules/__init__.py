"""A lab for schedules: a week with a change of the clocks, on a server whose clock is stepped from slot to slot, with
three workers that are killed at random and one of which is an hour off.

`python -m tests.labs schedules --seed 1` runs it. Read: `clock` (a server with a clock of its own), `worker` (a process
that declares schedules), `week` (the experiment, and what must hold in the end), `mutants` (proof that it bites).
"""
