"""Notes that wait to be written: what an attempt says after its end is not among them."""

from snapapp.jobs import Job
from snapapp.jobs.worker.notes import Notes


def test_what_a_job_says_after_its_end_does_not_join_its_notes_that_still_wait() -> None:
    """W18, W22: the row's progress would be that of a thread which nobody waits for any more."""
    notes = Notes()
    job = Job(1, "leaves", "default", "", 0, b"{}", None, 1, 1, 1, None, None)
    notes.progress(job, '{"percent": 99}')
    notes.log(job, "INFO", "in time")
    notes.ended([job], landed=True)
    waiting = notes.take()
    notes.progress(job, '{"percent": 1}')
    notes.log(job, "INFO", "too late")
    assert notes.take() == waiting
    assert notes.forget(waiting, is_held=lambda _: False)  # nothing waits any more
    assert notes.take() == []
