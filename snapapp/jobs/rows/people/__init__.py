"""What people see of the queue and do to many of its jobs: `views` (jobs), `overviews` (queues, workers), `failures`,
`relatives` (who waits for whom), `changes` (what is new), `history`; `bulk`, and `audit` of what was done."""
