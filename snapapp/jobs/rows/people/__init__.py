"""What people see of the queue and do to many of its jobs: `lists` (jobs by filter), `views` (one job), `overviews`
(queues, workers), `failures`, `relatives` (who waits for whom), `changes` (what is new), `history`; `bulk`, and `audit`
of what was done."""
