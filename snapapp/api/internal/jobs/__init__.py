"""Routes on jobs. Read `shown` (the models of a job) first, then `looking`, `adding`, `one` and `many` (changes to one
job, or to all that match), `failures`, `relatives`, `live` (the event stream), `kinds`, `costs`."""
