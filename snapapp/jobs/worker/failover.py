"""After a failover the worker leaves a server that stands still and does not hang up."""

from snapapp.jobs.rows.database import Database, place_of
from snapapp.jobs.worker.parts import WorkerParts

_LONGEST = 35.0  # seconds; the server itself ends a statement after 30


class Failover:
    """PostgreSQL alone limits how long a statement takes. If the old primary is frozen, its kernel still acknowledges
    what we send, and a thread that waits for its answer would wait as long as the machine is up."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts

    def look(self) -> None:
        """Cuts the connections that have been in use for too long, where a new one leads to another server. Where it
        leads to the same one, that is only slow, or a duty has much to do."""
        hanging = [database for database in self._parts.databases if database.used_for > _LONGEST]
        if hanging:
            with self._parts.connect("failover") as connection:
                place = place_of(connection)
            for database in hanging:
                self._leave(database, place)

    def _leave(self, database: Database, place: str) -> None:
        if database.used_for > _LONGEST and database.cut(unless_at=place):
            why = TimeoutError(f"the server has not answered for {_LONGEST:g} s, and new connections lead to {place}")
            self._parts.complain("leave a server", why)
