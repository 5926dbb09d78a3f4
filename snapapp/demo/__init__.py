"""The demo of a new installation: a small video, three snaps of it, and kinds of jobs to try."""

PREPARE = "demo.prepare"  # the kind of the job that makes the video and the snaps
