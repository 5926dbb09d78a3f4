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
_Change = Callable[[Db, list[int]], dict[int, Status]]  # raises JobsError where one of the jobs is refused


class Answers(NamedTuple):
    """What became of the jobs: each given id is in exactly one of the two."""

    done: dict[int, Status]  # by id: the status that the job now has
    refused: dict[int, str]  # by id: why nothing was done


def _ignore(_db: Db, _jobs: Collection[int]) -> None: ...


def retry(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Makes FAILED and CANCELLED jobs PENDING, with no attempt counted. Each page is a transaction if `db` is
    autocommit, otherwise a savepoint in the caller's transaction. A job that is refused does not stop the others."""
    return _in_pages(db, ids, _retry, on_progress, witness)


def run_now(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Makes waiting jobs due now. In pages, like `retry`."""
    return _in_pages(db, ids, _each(lifecycle.run_now), on_progress, witness)


def cancel(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Cancels waiting jobs and asks running ones to stop; the returned status tells which. In pages, like `retry`."""
    return _in_pages(db, ids, _each(lifecycle.cancel), on_progress, witness)


def discard(
    db: Db, ids: Iterable[int], why: str, on_progress: OnProgress | None = None, witness: Witness = _ignore
) -> Answers:
    """Makes waiting and FAILED jobs CANCELLED. In pages, like `retry`."""
    return _in_pages(db, ids, _each(lambda db, job_id: lifecycle.discard(db, job_id, why)), on_progress, witness)


def replay(db: Db, ids: Iterable[int], on_progress: OnProgress | None = None, witness: Witness = _ignore) -> Answers:
    """Enqueues a copy of each job; the returned status is the copy's. In pages, like `retry`."""
    return _in_pages(db, ids, _each(_replay), on_progress, witness)


def _retry(db: Db, page: list[int]) -> dict[int, Status]:
    """One statement for the page: a round trip for each job took more than half of the time."""
    lifecycle.retry_all_by_person(db, page)
    return dict.fromkeys(page, Status.PENDING)


def _replay(db: Db, job_id: int) -> Status:
    lifecycle.replay(db, job_id)
    return Status.PENDING


def _each(step: Callable[[Db, int], Status]) -> _Change:
    return lambda db, page: {job_id: step(db, job_id) for job_id in page}


def _in_pages(db: Db, ids: Iterable[int], change: _Change, on_progress: OnProgress | None, witness: Witness) -> Answers:
    answers = Answers({}, {})
    in_order = sorted(set(ids))  # one order of locks, so that two callers cannot deadlock
    for start in range(0, len(in_order), _PAGE):
        page = in_order[start : start + _PAGE]
        _change_page(db, page, change, witness, answers)
        if on_progress:
            on_progress(len(page))
    return answers


def _change_page(db: Db, page: list[int], change: _Change, witness: Witness, answers: Answers) -> None:
    """Adds to the answers. Where a job of the page is refused, the jobs are changed one by one."""
    try:
        with database.together(db):
            done = change(db, page)
            witness(db, done)
        answers.done.update(done)
    except JobsError as error:
        if len(page) == 1:
            answers.refused[page[0]] = str(error)
            return
        for job_id in page:
            _change_page(db, [job_id], change, witness, answers)
