"""Metrics and logs: `work` counts what the worker of this process did, `depth` measures how full the queues are,
`workers` and `fleet` read the other workers and pools from the database, `exposition` writes Prometheus's text, and
`log_lines` writes events as log lines."""
