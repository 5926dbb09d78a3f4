"""How this process is: `health`, `metrics` (of `process_metrics`), `observability` (the same as JSON) and `alerts`."""
