"""The commands that are processes and run until a signal: `service` (serve), `worker`, `supervisor` and `compute`.
`start` waits for their database; `reload` is for developers."""
