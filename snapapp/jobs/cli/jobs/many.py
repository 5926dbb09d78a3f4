"""`jobs retry, now, replay, cancel`: acts on jobs that are named by their ids, or on all that match."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from snapapp.jobs.cli.audited import note, witness_of_all, witness_of_each
from snapapp.jobs.cli.jobs.looking import show_lines
from snapapp.jobs.cli.jobs.which import add_filter, filter_of
from snapapp.jobs.cli.shown import answer, bar_of, begun, remark, say, show_json
from snapapp.jobs.cli.typed import Add, Db, job_number
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.database import together
from snapapp.jobs.rows.people import bulk, lists, views
from snapapp.jobs.rows.people.bulk import Answers
from snapapp.jobs.rows.people.lists import Filter

Step = Callable[[Db, Iterable[int], bulk.OnProgress, bulk.Witness], Answers]

_SAMPLE = 10  # jobs that a preview shows
_MOST_REPLAYED = 10_000  # in one call, so that a mistyped filter cannot copy millions of jobs
_COMPLAINTS = 20  # refusals that are printed one by one; the others are counted


def add_commands(add: Add) -> None:
    retrying = add("retry", retry_jobs, "run FAILED or CANCELLED jobs again, counting from zero")
    add_many(retrying, "--failed", "every FAILED job that matches")
    add("now", run_jobs_now, "make waiting jobs due now").add_argument("ids", nargs="+", type=job_number, metavar="ID")
    replaying = add("replay", replay_jobs, "run copies of jobs")
    add_many(replaying, "--ended", "every COMPLETED job that matches, or those of --status")
    replaying.add_argument("--status", type=str.upper, choices=[status.value for status in FINAL])
    cancelling = add("cancel", cancel_jobs, "end waiting jobs, ask running ones to stop")
    add_many(cancelling, "--waiting", "every waiting job that matches")


def add_many(parser: ArgumentParser, flag: str, what: str) -> None:
    parser.add_argument("ids", nargs="*", type=job_number, metavar="ID")
    parser.add_argument(flag, dest="all", action="store_true", help=what)
    add_filter(parser)
    parser.add_argument("--preview", action="store_true", help="count those that match, show some, change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def retry_jobs(db: Db, arguments: Namespace) -> int:
    return to_many(db, arguments, bulk.retry, lists.dead_letters, verb="retry", participle="retried")


def run_jobs_now(db: Db, arguments: Namespace) -> int:
    answers = watched(db, arguments.ids, bulk.run_now, witness_of_each("job.now", {}))
    report(answers, arguments, each="is due now")
    return 1 if answers.refused else 0


def cancel_jobs(db: Db, arguments: Namespace) -> int:
    return to_many(db, arguments, bulk.cancel, lists.waiting, verb="cancel", participle="cancelled")


def replay_jobs(db: Db, arguments: Namespace) -> int:
    if len(arguments.ids) == 1 and not arguments.all:
        return _replay_one(db, arguments.ids[0], arguments)
    return to_many(db, arguments, bulk.replay, _ended_jobs, verb="replay", participle="replayed")


def _ended_jobs(db: Db, which: Filter) -> list[int]:
    """The newest matching jobs that have ended. Their number is limited, because no index has the COMPLETED ones."""
    which = which if which.status else replace(which, status=Status.COMPLETED)
    return sorted(lists.matching(db, which, _MOST_REPLAYED).ids)


def _replay_one(db: Db, job_id: int, arguments: Namespace) -> int:
    with together(db):
        copy = lifecycle.replay(db, job_id)
        note(db, "job.replay", f"job {job_id}", jobs=1, detail={"copy": copy})
    return answer(arguments, {"id": copy, "replay_of": job_id}, f"Job {copy} repeats job {job_id}")


def to_many(
    db: Db,
    arguments: Namespace,
    step: Step,
    matching: Callable[[Db, Filter], list[int]],
    *,
    verb: str,
    participle: str,
    **said: str,
) -> int:
    """Takes a step with jobs, and reports it: for jobs that were named, an answer for each; for all that match, their
    number. The texts in `said` are added to the row of the audit."""
    which = filter_of(arguments)
    if bool(arguments.ids) == arguments.all or ((not which.is_open or arguments.preview) and not arguments.all):
        arguments.error(f"name the jobs to {verb} by their ids, or all that match by the option for it")
    if arguments.ids:
        answers = watched(db, arguments.ids, step, witness_of_each(f"job.{verb}", said))
        report(answers, arguments)
        return 1 if answers.refused else 0
    ids = matching(db, which)
    if arguments.preview:
        return _preview(db, ids, arguments, verb)
    if ids and not (arguments.yes or agreed(f"{verb} {counted_jobs(len(ids))}", arguments)):
        return 1
    detail = _narrowed(which, arguments) | said
    report(watched(db, ids, step, witness_of_all(f"jobs.{verb}", detail)), arguments, counted=participle)
    return 0


def _narrowed(which: Filter, arguments: Namespace) -> dict[str, Any]:
    """The filter as /internal writes it into the audit."""
    narrowed: dict[str, Any] = {"kind": which.kind, "queue": which.queue, "tenant": which.tenant, "error": which.error}
    age = None if which.older_than is None else which.older_than // timedelta(milliseconds=1)
    narrowed |= {"olderThanMs": age, "hash": which.hash, "status": getattr(arguments, "status", None)}
    return narrowed if not which.is_open else narrowed | {"all": True}


def _preview(db: Db, ids: list[int], arguments: Namespace, verb: str) -> int:
    sample = views.lines(db, ids[-_SAMPLE:])
    if arguments.json:
        show_json({"matching": len(ids), "sample": sample})
        return 0
    say(f"This would {verb} {counted_jobs(len(ids))}{', the newest of them:' if sample else '.'}")
    if sample:
        show_lines(sample, views.now(db))
    return 0


def agreed(question: str, arguments: Namespace) -> bool:
    if not sys.stdin.isatty():
        arguments.error(f"this would {question}: add --yes")
    sys.stderr.write(f"{begun(question)}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def watched(db: Db, ids: Sequence[int], step: Step, witness: bulk.Witness) -> Answers:
    with bar_of(len(ids)) as done:
        return step(db, ids, done, witness)


def report(answers: Answers, arguments: Namespace, *, counted: str | None = None, each: str | None = None) -> None:
    done, refused = answers
    if arguments.json:
        show_json({"done": list(done), "refused": [{"id": job_id, "why": why} for job_id, why in refused.items()]})
        return
    if counted:
        skipped = f", {len(refused)} refused" if refused else ""
        say(begun(f"{counted_jobs(len(done))} {counted}{skipped}."))
    else:
        for job_id, status in done.items():
            say(f"Job {job_id} {each or _NOW[status]}")
    for why in list(refused.values())[:_COMPLAINTS]:
        remark(why)
    if len(refused) > _COMPLAINTS:
        remark(f"… and {len(refused) - _COMPLAINTS} more")


_NOW = {
    Status.PENDING: "runs again",
    Status.CANCELLED: "is cancelled",
    Status.RUNNING: "is running and was asked to stop",
}


def counted_jobs(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs or 'no'} jobs"
