"""`jobs …`: `looking`, `adding` (and `spec`, a job as a document), `many` and `upkeep` (what is done to them), `logs`,
`tail`. `which` says which are meant."""
