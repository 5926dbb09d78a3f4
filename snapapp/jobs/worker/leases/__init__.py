"""What keeps a job ours, and takes it from the dead: `held` (which we hold, and whether we may still believe it),
`heartbeat` (says so to the database), `recovery` (what dead workers held comes back; what is old is forgotten)."""
