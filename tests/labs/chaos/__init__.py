"""A small fault lab: real workers, real kills, a history of what happened, and a checker that reads it afterwards.

`python -m tests.labs chaos --seconds 600` runs it. Read in this order: `recorder` (what is written down, by whom),
`kinds` (the jobs), `worker` (a process that runs them), `server` and `fleet` (what can be broken), `stage` (both),
`nemesis` and `cuts` (who breaks them), `client`, `history` and `checker` (what must hold), `mutants` (proof that it
bites), `lab` (all of it together), `directed` (single scenarios, each a proof).
"""
