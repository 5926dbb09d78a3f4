"""`jobs discard`, `jobs prune` and `jobs reclaim`. Workers prune and reclaim by themselves; here a person does it
now."""

from argparse import Namespace
from collections.abc import Iterable
from datetime import timedelta
from uuid import uuid4

from snapapp.jobs.cli.audited import actor, person
from snapapp.jobs.cli.jobs.many import add_many, agreed, counted_jobs, to_many
from snapapp.jobs.cli.shown import answer, bar_of, begun
from snapapp.jobs.cli.typed import Add, Db, age, text
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows import leases, retention
from snapapp.jobs.rows.database import together
from snapapp.jobs.rows.people import audit, bulk, lists

_PAGE = 1000  # jobs in a transaction
_SETTLED_FOR = timedelta(seconds=15)  # after a restart of the server, workers get the time of a beat to renew leases


def add_commands(add: Add) -> None:
    discarding = add("discard", discard_jobs, "end waiting jobs, give up FAILED ones; they say why and who")
    add_many(discarding, "--failed", "every FAILED job that matches")
    discarding.add_argument("--reason", type=text, required=True, help="for whoever wonders")
    pruning = add("prune", prune_jobs, "delete jobs that ended long ago, with their logs and costs")
    pruning.add_argument("--older-than", type=age, required=True, metavar="AGE", help="since they ended: 12h, 30d")
    pruning.add_argument("--status", type=str.upper, choices=[status.value for status in FINAL])
    pruning.add_argument("--kind", type=text)
    pruning.add_argument("--yes", action="store_true", help="do not ask")
    add("reclaim", reclaim_jobs, "take back the jobs whose lease has ended, without waiting for a worker to do it")


def discard_jobs(db: Db, arguments: Namespace) -> int:
    by = person()
    why = f"discarded{f' by {by}' if by else ''}: {arguments.reason}"

    def discard(db: Db, ids: Iterable[int], on_progress: bulk.OnProgress, witness: bulk.Witness) -> bulk.Answers:
        return bulk.discard(db, ids, why, on_progress, witness)

    dead = lists.dead_letters
    return to_many(db, arguments, discard, dead, verb="discard", participle="discarded", reason=arguments.reason)


def prune_jobs(db: Db, arguments: Namespace) -> int:
    keep, kind = arguments.older_than, arguments.kind
    status = Status(arguments.status) if arguments.status else None
    jobs = retention.prunable(db, keep=keep, status=status, kind=kind)
    if jobs and not (arguments.yes or agreed(f"delete {counted_jobs(jobs)} for good", arguments)):
        return 1
    detail, run = {"olderThanMs": keep // timedelta(milliseconds=1), "status": status, "kind": kind}, uuid4()
    deleted, after = 0, 0 if jobs else None
    with bar_of(jobs) as done:
        while after is not None:
            with together(db):
                some, after = retention.prune(db, keep=keep, after=after, limit=_PAGE, status=status, kind=kind)
                audit.write(db, actor(), "jobs.prune", "jobs", jobs=some, detail=detail, run=run)
            deleted += some
            done(some)
    return answer(arguments, {"deleted": deleted}, begun(f"{counted_jobs(deleted)} deleted."))


def reclaim_jobs(db: Db, arguments: Namespace) -> int:
    taken: list[int] = []
    run = uuid4()
    while True:
        with together(db):
            some = leases.recover(db, settled_for=_SETTLED_FOR, limit=_PAGE)
            if some:
                audit.write(db, actor(), "jobs.reclaim", "jobs", jobs=len(some), run=run)
        taken += some
        if len(some) < _PAGE:
            break
    return answer(arguments, {"reclaimed": taken}, begun(f"{counted_jobs(len(taken))} reclaimed."))
