"""The commands `jobs …`: `looking` (list, show, explain, workflows), `stats`, `adding` (enqueue) and `spec` (run, for a
job in a document), `many` (retry, now, replay, cancel) and `upkeep` (discard, prune, reclaim), `logs` and `tail`.
`which` reads the options that select jobs."""
