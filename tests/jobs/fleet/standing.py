"""A supervisor and how its pool stands, as rows: for tests of who reads them."""

import os
from typing import Any

from snapapp.jobs.fleet import store
from snapapp.jobs.fleet.plan import Pool
from snapapp.jobs.fleet.pool import PoolStatus, State
from snapapp.jobs.fleet.store import Master
from snapapp.jobs.os import processes
from tests.factory import Db

POOL = "mail-supervisor"


def master(db: Db, host: str = "box", name: str = "m1", **pool: Any) -> Master:
    """One that holds its host, with a pool that has the one process it wants, unless it is said otherwise."""
    me = os.getpid()
    its = Master(name, host, processes.machine(), me, processes.started(me) or 0)
    assert store.hold(db, its)
    stand(db, its, **pool)
    return its


def stand(db: Db, its: Master, **changes: Any) -> None:
    planned = Pool(name=POOL, queues=("mail",), max_processes=4)
    now: dict[str, Any] = {"state": State.ACTIVE, "state_reason": None, "fixed_at": None, "wanted": 1, "present": 1}
    store.write_status(db, its.host, PoolStatus(planned=planned, **now | {"leaving": 0, "note": None} | changes))
