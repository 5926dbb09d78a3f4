"""An examination as the tests ask for one, and who stands on the roster meanwhile."""

from datetime import timedelta
from typing import Any

from snapapp.jobs import Job, doctor
from snapapp.jobs.doctor import Facts, Finding, Limits
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.people.audit import Actor
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.schedules import ledger
from snapapp.jobs.schedules.ledger import Declaration
from tests.factory import Db
from tests.jobs.working import quick_settings, until

AT_ONCE = timedelta(0)
BY = Actor("ana", "terminal")


def facts(url: str, **changes: Any) -> Facts:
    known: dict[str, Any] = {"connections": 10, "disk_free_min_mb": 0, "schema": {}}
    return Facts(jobs=quick_settings(url), **known | changes)


def examine(url: str, *only: str, limits: Limits | None = None, **changes: Any) -> list[Finding]:
    return doctor.examine(url, facts(url, **changes), only=only, limits=limits)


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def the(findings: list[Finding], wanted: str) -> Finding:
    found = [finding for finding in findings if finding.id == wanted]
    assert len(found) == 1, findings
    return found[0]


def until_found(url: str, check: str, wanted: str, **options: Any) -> Finding:
    """Numbers that the server gathers beside the work come a moment later."""
    until(lambda: wanted in ids(examine(url, check, **options)))
    return the(examine(url, check, **options), wanted)


def member(worker: str = "a" * 32, **changes: Any) -> Member:
    """A worker of another machine, unless it is said otherwise."""
    known: dict[str, Any] = {"name": "box-1", "host": "box", "machine": "boot", "pid": 1, "pid_started": 1}
    known |= {"queues": [], "kinds": ["test"], "slots": 4}
    return Member(id=worker, **known | changes)


def enlist(db: Db, who: Member | None = None) -> None:
    roster.beat(db, who or member(), Report(), lives_for=timedelta(hours=1))


def declare(db: Db, who: Member, **options: Any) -> None:
    """As a worker does that started an hour ago."""
    known = Registry()

    @known.scheduled(name="nightly", **options)
    def work(job: Job) -> None: ...

    enlist(db, who)
    db.execute("UPDATE job_worker SET started_at = now() - interval '1 hour' WHERE id = %s", [who.id])
    [schedule] = known.schedules()
    ledger.declare(db, Declaration(schedule, "default", 3, who.id))
