"""What a new installation shows in its first minute: a small film, three snaps, and kinds of jobs to try."""
