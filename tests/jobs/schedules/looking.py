"""A look at the schedules when a test says so, and what the rows say afterwards."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from snapapp.jobs import Job
from snapapp.jobs.events import Events
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import Database, connect
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.schedules.ledger import Declaration
from snapapp.jobs.schedules.scheduler import Scheduler
from snapapp.jobs.schedules.slots import slots
from tests.factory import Db
from tests.jobs.working import Heard

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def work(job: Job) -> None: ...


def routine() -> None: ...


async def work_async(job: Job) -> None: ...


Look = Callable[[], float]


class Looker:
    """What a worker has for its schedules, without the worker: it looks when the test says so."""

    def __init__(self, url: str, known: Registry, name: str = "worker") -> None:
        self.events = Events()
        self.heard = Heard(self.events)
        self._database = Database(lambda: connect(url, name=name))
        declarations = [
            Declaration(its, known.get(its.name).queue, known.get(its.name).max_attempts or 3, name)
            for its in known.schedules()
        ]
        scheduler = Scheduler(name, self._database, declarations, self.events)
        self._scheduler, self.close = scheduler, scheduler.close

    def look(self) -> float:
        """The first one declares, as it does in a worker, whose thread then looks again at once."""
        if not self._scheduler._declared:
            self._scheduler.look()
        return self._scheduler.look()


def enlist(db: Db, name: str, *, dead: bool = False) -> None:
    """On the roster, where those who look find out who is alive."""
    member = Member(id=name, name=name, host="box", machine="boot", pid=1, pid_started=1, queues=(), kinds=(), slots=1)
    roster.beat(db, member, Report(), lives_for=-HOUR if dead else HOUR)


def move_back(db: Db, by: timedelta) -> None:
    """As if nobody had looked for so long: what fired since, as in a second that began between a declaration and the
    look after it, has not."""
    db.execute(
        "UPDATE job_schedule SET settled_until = settled_until - %(by)s, created_at = created_at - %(by)s", {"by": by}
    )
    db.execute(
        """WITH undone AS (
               DELETE FROM job_schedule_slot AS its USING job_schedule
                WHERE its.schedule = name AND slot > settled_until RETURNING job_id)
           DELETE FROM snap_processing_job USING undone WHERE id = job_id"""
    )


def ledger(db: Db, name: str = "its") -> list[tuple[datetime, str, str | None, int | None]]:
    return db.execute(
        "SELECT slot, outcome, why, job_id FROM job_schedule_slot WHERE schedule = %s ORDER BY slot", [name]
    ).fetchall()


def outcomes(db: Db, name: str = "its") -> Counter[str]:
    return Counter(outcome for _, outcome, _, _ in ledger(db, name))


def all_slots(db: Db, name: str = "its") -> list[datetime]:
    """Every slot from the creation of the schedule to where it stands."""
    [row] = db.execute(
        "SELECT spec, tz, created_at, settled_until FROM job_schedule WHERE name = %s", [name]
    ).fetchall()
    return slots(*row)


def payloads(db: Db) -> list[str]:
    return [text for (text,) in db.execute("SELECT payload::text FROM snap_processing_job ORDER BY id").fetchall()]


def another(every: timedelta) -> Registry:
    """The same schedule in another release."""
    release = Registry()
    release.scheduled(every=every, name="its")(work)
    return release
