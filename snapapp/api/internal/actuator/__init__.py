"""The state of this process: `health`, `metrics` (from `process_metrics`), `observability` (both as JSON) and
`alerts`."""
