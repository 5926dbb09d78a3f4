"""Routes on jobs. Read `shown` (a job as it is told) first, then `looking`, `adding`, `one` and `many` (what is done to
one job, or to all that match), `failures`, `relatives`, `live` (what happens, as it happens), `kinds`, `costs`."""
