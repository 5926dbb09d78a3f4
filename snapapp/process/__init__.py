"""What one running process holds: `monolith` (database, worker, API together), `shutdown` (how it ends), `health`,
`loop_lag` (how late the event loop is)."""
