"""A supervisor and how its pool stands, as rows: for tests of who reads them."""

import os
from typing import Any

from snapapp.jobs import crumbs
from snapapp.jobs.fleet import history
from snapapp.jobs.fleet.history import Master
from snapapp.jobs.fleet.plan import Pool
from snapapp.jobs.fleet.pool import Standing, State
from tests.factory import Db

POOL = "mail-supervisor"


def master(db: Db, host: str = "box", name: str = "m1", **pool: Any) -> Master:
    """One that holds its host, with a pool that has the one process it wants, unless it is said otherwise."""
    me = os.getpid()
    its = Master(name, host, crumbs.machine(), me, crumbs.started(me) or 0)
    assert history.hold(db, its)
    stand(db, its, **pool)
    return its


def stand(db: Db, its: Master, **changes: Any) -> None:
    planned = Pool(name=POOL, queues=("mail",), max_processes=4)
    now: dict[str, Any] = {"state": State.ACTIVE, "state_reason": None, "fixed_at": None, "wanted": 1, "present": 1}
    history.stand(db, its.host, Standing(planned=planned, **now | {"leaving": 0, "note": None} | changes))
