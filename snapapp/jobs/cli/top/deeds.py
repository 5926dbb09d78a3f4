"""The actions of a person in `snapapp top`. Each asks first, and is written into the audit in its own transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from snapapp.jobs.cli import queues
from snapapp.jobs.cli.audited import note, witness_of_all
from snapapp.jobs.cli.jobs.many import counted_jobs
from snapapp.jobs.cli.top.refresher import Db, Deed, Say
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.database import together
from snapapp.jobs.rows.people import bulk, failures
from snapapp.jobs.rows.people.failures import Group
from snapapp.jobs.rows.people.lists import Filter
from snapapp.jobs.rows.people.overviews import QueueSummary
from snapapp.jobs.rows.people.views import JobSummary


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that a person must answer before an action. `make` is called with the reason, if one is asked for."""

    question: str
    make: Callable[[str | None], Deed]
    wants_reason: bool = False


def retry_job(job: JobSummary) -> Ask | str:
    if job.status not in (Status.FAILED, Status.CANCELLED):
        return f"Job {job.id} is {job.status}: only a FAILED or CANCELLED one is retried."
    deed = partial(_change, job.id, lifecycle.retry_by_person, "job.retry", "runs again")
    return Ask(f"Retry job {job.id} ({job.kind})?", lambda _: deed)


def run_job_now(job: JobSummary) -> Ask | str:
    if job.status not in (Status.PENDING, Status.RETRY_WAIT):
        return f"Job {job.id} is {job.status}: only a waiting one can be run now."
    if job.waits_for:
        return f"Job {job.id} waits for its parents: it can run when they have ended."
    deed = partial(_change, job.id, lifecycle.run_now, "job.now", "is due now")
    return Ask(f"Make job {job.id} ({job.kind}) due now?", lambda _: deed)


def cancel_job(job: JobSummary) -> Ask | str:
    if job.status in FINAL:
        return f"Job {job.id} is {job.status}: there is nothing to cancel."
    deed = partial(_change, job.id, lifecycle.cancel, "job.cancel", "is cancelled")
    return Ask(f"Cancel job {job.id} ({job.kind})?", lambda _: deed)


def _change(job_id: int, change: Callable[[Db, int], object], action: str, said: str, db: Db, _say: Say) -> str:
    with together(db):
        status = change(db, job_id)
        note(db, action, f"job {job_id}", jobs=1)
    if status is Status.RUNNING:  # a cancelled job that runs is ended by its worker
        said = "was asked to stop"
    return f"Job {job_id} {said}."


def switch_queue(queue: QueueSummary) -> Ask:
    name = queue.queue
    if queue.paused_at:
        return Ask(f"Resume the queue {name}?", lambda _: lambda db, _say: queues.resume(db, name))
    question = f"Pause the queue {name}; the reason:"
    return Ask(question, lambda why: lambda db, _say: queues.pause(db, name, why), wants_reason=True)


def retry_group(group: Group) -> Ask:
    line = group.line or "no error was written down"
    return Ask(
        f"Retry the {counted_jobs(group.jobs)} of {group.kind} that failed with: {line}?",
        lambda _: partial(_retry_group, group),
    )


def _retry_group(group: Group, db: Db, say: Say) -> str:
    """Retries the group by ascending id up to the newest job of now, so that no job is retried twice. The whole group
    is one row of the audit."""
    which = Filter(status=Status.FAILED, kind=group.kind, error_line=group.line)
    witness = witness_of_all("jobs.retry", {"kind": group.kind, "errorLine": group.line})
    up_to, after, done, refused = failures.newest(db), 0, 0, 0
    while True:
        step = failures.step(db, which, after=after, up_to=up_to, limit=failures.STEP)
        answers = bulk.retry(db, step.ids, witness=witness)
        done, refused = done + len(answers.done), refused + len(answers.refused)
        if step.last is None:
            return f"{counted_jobs(done)} retried{f', {refused} refused' if refused else ''}."
        after = step.last
        say(f"{counted_jobs(done)} retried so far …")
