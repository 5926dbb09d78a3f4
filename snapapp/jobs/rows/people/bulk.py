"""One change for many jobs: a page of jobs in each transaction, because a commit costs more than changing a job."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import Status
from snapapp.jobs.rows import database, lifecycle
from snapapp.jobs.rows.database import Db

_PAGE = 100  # jobs

OnProgress = Callable[[int], None]  # called with the number of jobs just answered
Witness = Callable[[Db, Collection[int]], None]  # called with the ids changed, in the transaction of the change
_Step = Callable[[Db, int], Status]
_Page = Callable[[Db, list[int]], dict[int, Status]]


class Answers(NamedTuple):
    """What became of the jobs: each given id is in exactly one of the two."""

    done: dict[int, Status]  # by id: the status that the job now has
    refused: dict[int, str]  # by id: why nothing was done


def _ignore(_db: Db, _jobs: Collection[int]) -> None: ...


def retry(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Makes FAILED and CANCELLED jobs PENDING, with no attempt counted. Each page is a transaction if `db` is
    autocommit, otherwise a savepoint in the caller's transaction. A job that is refused does not stop the others."""
    return _in_pages(db, ids, _retry, on_progress, witness, page_of=_retry_all)


def cancel(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Cancels waiting jobs and asks running ones to stop; the returned status tells which. In pages, like `retry`."""
    return _in_pages(db, ids, lifecycle.cancel, on_progress, witness)


def discard(
    db: Db, ids: Iterable[int], why: str, on_progress: OnProgress | None = None, witness: Witness = _ignore
) -> Answers:
    """Makes waiting and FAILED jobs CANCELLED. In pages, like `retry`."""
    return _in_pages(db, ids, lambda db, job_id: lifecycle.discard(db, job_id, why), on_progress, witness)


def replay(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Enqueues a copy of each job; the returned status is the copy's. In pages, like `retry`."""
    return _in_pages(db, ids, _replay, on_progress, witness)


def _retry(db: Db, job_id: int) -> Status:
    lifecycle.retry_by_person(db, job_id)
    return Status.PENDING


def _retry_all(db: Db, page: list[int]) -> dict[int, Status]:
    """One statement for the page: a round trip for each job took more than half of the time."""
    lifecycle.retry_all_by_person(db, page)
    return dict.fromkeys(page, Status.PENDING)


def _replay(db: Db, job_id: int) -> Status:
    lifecycle.replay(db, job_id)
    return Status.PENDING


def _in_pages(
    db: Db,
    ids: Iterable[int],
    step: _Step,
    on_progress: OnProgress | None,
    witness: Witness,
    page_of: _Page | None = None,
) -> Answers:
    answers = Answers({}, {})
    in_order = sorted(set(ids))  # one order of locks, so that two callers cannot deadlock
    for start in range(0, len(in_order), _PAGE):
        page = in_order[start : start + _PAGE]
        page_answers = _page(db, page, step, witness, page_of)
        answers.done.update(page_answers.done)
        answers.refused.update(page_answers.refused)
        if on_progress:
            on_progress(len(page))
    return answers


def _page(db: Db, page: list[int], step: _Step, witness: Witness, page_of: _Page | None) -> Answers:
    try:
        with database.together(db):
            done = page_of(db, page) if page_of else {job_id: step(db, job_id) for job_id in page}
            witness(db, done)
        return Answers(done, {})
    except JobsError:
        return _one_by_one(db, page, step, witness)


def _one_by_one(db: Db, page: list[int], step: _Step, witness: Witness) -> Answers:
    answers = Answers({}, {})
    for job_id in page:
        try:
            with database.together(db):
                status = step(db, job_id)
                witness(db, [job_id])
            answers.done[job_id] = status
        except JobsError as error:
            answers.refused[job_id] = str(error)
    return answers
