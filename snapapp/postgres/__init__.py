"""The embedded PostgreSQL: one server per data directory, shared by every process that uses it.

Read `server` first: the first process starts the server, the others share it, and the last one stops it. Then `locks`,
`cluster` (the server's files), `postmaster` (its process), `account` (the user that it runs as), `sockets`, `home` and
`psql`.
"""

from snapapp.postgres.psql import psql_argv, run_psql
from snapapp.postgres.server import Server, start

__all__ = ["Server", "psql_argv", "run_psql", "start"]
