"""The embedded PostgreSQL: one server per data directory, shared by every process that uses it.

Read `server` first: who starts it, who shares it, who is the last one out. Then `locks`, `cluster` (the files
it keeps), `postmaster` (its process), `account` (under which user it runs), `sockets`, `home` and `psql`.
"""

from snapapp.postgres.psql import psql_argv, run_psql
from snapapp.postgres.server import Server, start

__all__ = ["Server", "psql_argv", "run_psql", "start"]
