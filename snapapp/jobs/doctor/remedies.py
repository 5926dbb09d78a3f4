"""The remedies of --fix: only what a worker or autovacuum would do itself sooner or later. A remedy never resumes,
drops or ends anything."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from time import sleep

import psycopg
from psycopg import sql

from snapapp.jobs.amounts import counted
from snapapp.jobs.doctor.finding import Act, Facts, Finding, Remedy, one_line
from snapapp.jobs.events import Events
from snapapp.jobs.os import processes
from snapapp.jobs.rows import leases
from snapapp.jobs.rows.database import Database, Row, connect
from snapapp.jobs.rows.people import audit
from snapapp.jobs.rows.people.audit import Actor
from snapapp.jobs.rows.roster import Counts, Member
from snapapp.jobs.worker.leases.recovery import Recovery

_PATIENCE = timedelta(minutes=10)  # a vacuum of a large table may take that long
_BY_SILENCE = {Act.CLEAR_ROSTER, Act.RECOVER}


@dataclass(frozen=True, slots=True)
class Deed:
    """A remedy that was applied; a finding may still be there although it has worked."""

    check: str
    said: str
    has_worked: bool


def mend(url: str, findings: Iterable[Finding], facts: Facts, by: Actor) -> list[Deed]:
    """Applies the remedies of these findings, each once. The audit is written first, because VACUUM cannot run in the
    same transaction."""
    curable = [finding for finding in findings if finding.remedy]
    wanted = {finding.remedy: finding.check for finding in curable if finding.remedy}
    with connect(url, name="snapapp doctor", statement_timeout=_PATIENCE, prepared_statements=False) as db:
        for (name, check), count in Counter((finding.id, finding.check) for finding in curable).items():
            audit.write(db, by, "doctor.fix", f"finding {name}", detail={"check": check, "findings": count})
        if not _BY_SILENCE.isdisjoint(remedy.act for remedy in wanted):
            # As a worker does when it starts: after a step of the database's clock, or a restart of the server, all
            # workers look silent and all leases ended until the next beats.
            sleep((facts.jobs.beat_every + timedelta(seconds=1)).total_seconds())
        return [_try_remedy(db, remedy, check, facts) for remedy, check in wanted.items()]


def _try_remedy(db: psycopg.Connection[Row], remedy: Remedy, check: str, facts: Facts) -> Deed:
    try:
        return Deed(check, _apply(db, remedy, facts), has_worked=True)
    except psycopg.Error as error:
        return Deed(check, f"{remedy.act.value} {remedy.table}".strip() + f" failed: {one_line(str(error))}", False)


def _apply(db: psycopg.Connection[Row], remedy: Remedy, facts: Facts) -> str:
    match remedy.act:
        case Act.VACUUM:
            db.execute(sql.SQL("VACUUM (ANALYZE, SKIP_LOCKED) {}").format(sql.Identifier(remedy.table)))
            return f"Swept and analyzed {remedy.table}."
        case Act.ANALYZE:
            db.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(remedy.table)))
            return f"Analyzed {remedy.table}."
        case Act.CLEAR_ROSTER:
            return _clear_roster(db, facts)
        case Act.RECOVER:
            return _recover(db)


def _clear_roster(db: psycopg.Connection[Row], facts: Facts) -> str:
    """Removes dead workers by the rules that every worker applies to its neighbours: a worker of another machine is
    removed after ten leases."""
    before = {*_roster(db)}
    recovery = Recovery(facts.jobs, _visitor(), Database(lambda: db), Counts(), Events())
    taken = recovery.recover_neighbours(judges_silence=True)
    gone = len(before - {*_roster(db)})
    return f"Took {counted(gone, 'worker', 'workers')} off the roster, and {counted(taken, 'job', 'jobs')} back."


def _roster(db: psycopg.Connection[Row]) -> Iterator[str]:
    return (worker for (worker,) in db.execute("SELECT id FROM job_worker").fetchall())


def _recover(db: psycopg.Connection[Row]) -> str:
    """Takes back the jobs whose leases ended."""
    taken = leases.recover(db)
    if not taken:
        return "Took no job back: others did so meanwhile, or their holders have renewed their leases."
    jobs = counted(len(taken), "job back whose lease had ended; it runs", "jobs back whose leases had ended; they run")
    return f"Took {jobs} again."


def _visitor() -> Member:
    return Member(
        id="doctor",
        name="doctor",
        host="",
        machine=processes.machine(),
        pid=0,
        pid_started=0,
        queues=(),
        kinds=(),
        slots=0,
    )
