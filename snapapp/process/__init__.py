"""The parts of one running process: `monolith` (database, worker and web together), `shutdown` (how it ends), `health`
(the state of its parts), `alarm` (tells whoever is on call what the doctor finds, with `alerts`), `loop_lag` (how late
the event loop is), `systemd` (readiness and the watchdog) and `compute_node` (a node of a cluster)."""
