"""A folder, a server and a fleet of workers, all gone in the end: what every scenario stands on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from snapapp.postgres.migrate import migrate
from tests.labs.chaos import recorder
from tests.labs.chaos.fleet import Fleet
from tests.labs.chaos.recorder import Recorder
from tests.labs.chaos.server import LabServer, guarded_folder
from tests.labs.chaos.worker import Profile, Spec

_WAITING = "SELECT count(*) FROM snap_processing_job WHERE status IN ('PENDING', 'RUNNING', 'RETRY_WAIT')"


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    server: LabServer
    fleet: Fleet
    profile: Profile

    def ask(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.server.connect() as db:
            return db.execute(sql, parameters).fetchall()

    def drain(self, within: float, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Waits until every job has ended, keeping the fleet alive; False: some have not."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            self.fleet.respawn()
            meanwhile()
            try:
                if self.ask(_WAITING)[0][0] == 0:
                    return True
            except psycopg.OperationalError:
                pass  # it was just taken away, and comes back
            time.sleep(0.05)
        return False


@contextmanager
def stage(workers: int, profile: Profile, *, elsewhere: int = 0, **others: Any) -> Iterator[Stage]:
    """`elsewhere`: so many of the workers behave as if each had a machine of its own. The rest is told to all."""
    with guarded_folder() as (here, guard):
        server = LabServer(here)
        try:
            migrate(server.url)
            with server.connect() as db:
                recorder.install(db)
            specs = [
                Spec(url=server.url, folder=here, profile=profile, elsewhere=n < elsewhere, **others)
                for n in range(workers)
            ]
            fleet = Fleet(specs, Recorder(here, "lab").write, on_spawn=guard.watch)
            try:
                yield Stage(here, server, fleet, profile)
            finally:
                fleet.end()
        finally:
            server.bring_back()  # a scenario may end with the server down; a stop needs a whole one
            server.stop()
