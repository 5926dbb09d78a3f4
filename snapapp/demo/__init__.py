"""What a new installation shows in its first minute: a small film, three snaps, and kinds of jobs to try."""

PREPARE = "demo.prepare"  # the kind of the job that makes it
