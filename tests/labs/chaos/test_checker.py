"""The checker is believed only because each of its invariants has been seen to fail."""

from dataclasses import replace
from typing import Any

import pytest

from tests.labs.chaos.checker import check
from tests.labs.chaos.history import Event, Final, History, Promises

A, B = "worker-a", "worker-b"
LEASE = 3.0


class Story:
    """Writes a history by hand, the way the lab would have recorded it."""

    def __init__(self, kind: str = "hooked", max_attempts: int = 3) -> None:
        self.events: list[Event] = []
        self.lines: list[dict[str, Any]] = [
            {"what": "worker", "worker": A, "pid": 1, "at": 0.0},
            {"what": "worker", "worker": B, "pid": 2, "at": 0.0},
        ]
        self.effects: list[tuple[int, int]] = []
        self.burials: list[tuple[int, int]] = []
        self.final = Final(id=1, kind=kind, status="PENDING", max_attempts=max_attempts, key="job-1")
        self.now = 100.0
        self.attempt = 0
        self._append(Event(job=1, becomes="PENDING", seq_new=0, at=self.now))
        self.line("enqueue ok", key="job-1", job=1)

    def line(self, what: str, worker: str | None = None, **facts: Any) -> "Story":
        who = {"worker": worker, "pid": {A: 1, B: 2}.get(worker or "")}
        self.lines.append({"what": what, "at": self.now} | who | facts)
        return self

    def wait(self, seconds: float) -> "Story":
        self.now += seconds
        return self

    def claim(self, by: str, **others: Any) -> "Story":
        self.attempt += 1
        return self.change("RUNNING", actor=by, holder_new=by, attempt_new=self.attempt, **others)

    def complete(self, by: str, **others: Any) -> "Story":
        seq = self.seq
        self.change("COMPLETED", actor=by, **others)
        self.effects.append((1, seq))
        self.line("completed", by, job_id=1)
        return self.line("settle", by, lease=[1, seq], status="COMPLETED")

    def recover(self, by: str, **others: Any) -> "Story":
        return self.change("RETRY_WAIT", actor=by, error="worker lost", **others)

    def fail(self, by: str) -> "Story":
        return self.change("RETRY_WAIT", actor=by, error="ValueError: no")

    def die(self, by: str) -> "Story":
        self.final = replace(self.final, reasons=3, last_error="worker lost")
        return self.change("FAILED", actor=by, error="worker lost")

    def change(self, becomes: str, **others: Any) -> "Story":
        """From where the last one led; leases begin when they are claimed."""
        self.now += 0.1
        last = self.events[-1]
        runs = last.becomes == "RUNNING"
        facts: dict[str, Any] = {
            "was": last.becomes,
            "seq_old": last.seq_new,
            "seq_new": last.seq_new + 1,
            "attempt_old": last.attempt_new,
            "attempt_new": last.attempt_new,
            "holder_old": last.holder_new,
            "started_old": runs,
            "beaten_old": last.at if runs else None,
            "expires_old": last.at + LEASE if runs else None,
        }
        self._append(Event(job=1, becomes=becomes, at=self.now, **(facts | others)))
        return self

    @property
    def seq(self) -> int:
        return self.events[-1].seq_new

    def _append(self, event: Event) -> None:
        self.events.append(event)
        self.final = replace(self.final, status=event.becomes)

    def history(self) -> History:
        return History(
            lines=self.lines,
            events=self.events,
            jobs=[self.final],
            effects=self.effects,
            burials=self.burials,
            hooked=frozenset({"hooked"}),
            deadly=frozenset({"deadly"}),
            promises=Promises(sweep=1.0, beat=0.5, grace=2.0),
        )


def broken(story: Story) -> set[str]:
    return {violation.invariant for violation in check(story.history()).violations}


# --- good histories -------------------------------------------------------------------------------------------------


def test_a_plain_life_is_good() -> None:
    verdict = check(Story().claim(A).complete(A).history())
    assert verdict.violations == ()
    assert (verdict.counts["jobs"], verdict.counts["claims"], verdict.counts["completed"]) == (1, 1, 1)


def test_a_job_that_is_taken_over_and_a_late_completion_that_is_refused_are_good() -> None:
    story = Story().claim(A).wait(LEASE).recover(B).claim(B)
    story.line("settle", A, lease=[1, 1], status=None)
    verdict = check(story.complete(B).history())
    assert verdict.violations == ()
    assert (verdict.counts["recovered"], verdict.counts["refused stale"]) == (1, 1)
    assert list(verdict.takeovers) == pytest.approx([LEASE + 0.1])


def test_a_commit_of_unknown_end_may_have_landed_or_not() -> None:
    landed = Story().claim(A).line("settle info", A, leases=[[1, 1]]).complete(A)
    lost = Story().claim(A).line("settle info", A, leases=[[1, 1]]).wait(LEASE).recover(B).claim(B).complete(B)
    assert broken(landed) == broken(lost) == set()


def test_what_was_handed_back_may_be_claimed_once_more() -> None:
    story = Story()
    for _ in range(5):
        story.claim(A).change("PENDING", actor=A, attempt_new=0)
        story.attempt = 0
    assert broken(story.claim(A).complete(A)) == set()


def test_a_killed_workers_jobs_may_be_taken_before_their_leases_end() -> None:
    assert broken(Story().claim(A).line("kill", of=1).recover(B).claim(B).complete(B)) == set()


def test_a_persons_retry_starts_the_count_again() -> None:
    story = Story()
    for _ in range(2):
        story.attempt = 0
        story.claim(A).fail(A).claim(A).fail(A).claim(A).die(A).change("PENDING", attempt_new=0)
    story.attempt = 0
    assert broken(story.claim(A).complete(A)) == set()


def test_an_exhausted_job_is_claimed_once_more_to_be_judged() -> None:
    story = Story(kind="deadly")
    for _ in range(3):
        story.claim(A).line("kill", of=1).recover(B)
    assert broken(story.claim(B).die(B)) == set()


# --- bad ones -------------------------------------------------------------------------------------------------------


def test_i1_an_acknowledged_job_that_is_missing() -> None:
    assert broken(Story().claim(A).complete(A).line("enqueue ok", key="job-2", job=2)) == {"I1"}


def test_i1_a_job_that_was_rolled_back_and_is_there() -> None:
    assert broken(Story().claim(A).complete(A).line("enqueue fail", key="job-1")) == {"I1"}


def test_i2_a_job_that_never_ends() -> None:
    assert broken(Story().claim(A)) == {"I2"}


def test_i2_a_worker_that_sits_on_a_job() -> None:
    story = Story().claim(A).wait(60.0)
    assert broken(story.complete(A, expires_old=story.now + 1)) == {"I2"}


def test_i3_a_change_that_the_machine_forbids() -> None:
    story = Story().claim(A).complete(A)
    assert "I3" in broken(story.change("RETRY_WAIT", actor=A))


def test_i3_a_worker_takes_a_job_out_of_its_grave() -> None:
    story = Story().claim(A).die(A).change("PENDING", actor=B)
    assert broken(story.claim(B).complete(B)) == {"I3"}


def test_i3_a_lease_number_that_does_not_rise() -> None:
    story = Story().claim(A).wait(LEASE).recover(B, seq_new=1)
    assert "I3" in broken(story.claim(B).complete(B))


def test_i3_a_change_that_nobody_wrote_down() -> None:
    story = Story().claim(A).complete(A)
    story.events[-1] = replace(story.events[-1], seq_old=7, seq_new=8)
    assert "I3" in broken(story)


def test_i4_a_stale_completion_that_is_accepted() -> None:
    story = Story().claim(A).wait(LEASE).recover(B).claim(B)
    assert broken(story.complete(A)) == {"I4"}


def test_i4_a_stale_failure_that_is_accepted() -> None:
    story = Story().claim(A).wait(LEASE).recover(B).claim(B).fail(A)
    assert broken(story.claim(B).complete(B)) == {"I4"}


def test_i4_a_completion_of_an_older_lease_by_the_same_worker() -> None:
    story = Story().claim(A).wait(LEASE).recover(B).claim(A).complete(A)
    assert broken(story.line("complete", A, ok=[[1, 1]], refused=[])) == {"I4"}


def test_i4_a_hook_that_ran_twice() -> None:
    story = Story().claim(A).complete(A)
    story.effects.append((1, 1))
    assert broken(story) == {"I4"}


def test_i4_a_hook_that_did_not_run() -> None:
    story = Story().claim(A).complete(A)
    story.effects.clear()
    assert broken(story) == {"I4"}


def test_i4_an_effect_of_a_lease_that_did_not_complete() -> None:
    story = Story().claim(A).wait(LEASE).recover(B).claim(B).complete(B)
    story.effects[:] = [(1, 1)]
    assert broken(story) == {"I4"}


def test_i4_a_beat_for_somebody_elses_lease() -> None:
    story = Story().claim(A)
    story.change("RUNNING", actor=B, holder_new=A, seq_new=1)
    assert broken(story.complete(A)) == {"I4"}


def test_i4_a_job_that_is_buried_twice() -> None:
    story = Story().claim(A).die(A)
    story.burials += [(1, 1), (1, 1)]
    assert broken(story) == {"I4"}


def test_i5_a_job_taken_from_a_worker_that_lives() -> None:
    assert broken(Story().claim(A).recover(B).claim(B).complete(B)) == {"I5"}


def test_i5_a_worker_that_was_killed_is_dead_though_another_gets_its_pid() -> None:
    story = Story().claim(A).line("kill", of=1).recover(B).claim(B).complete(B)
    assert broken(story.line("worker", "worker-c", pid=1)) == set()


def test_i5_a_claim_on_top_of_a_claim() -> None:
    assert "I5" in broken(Story().claim(A).claim(B).complete(B))


def test_i7_a_job_that_is_claimed_for_ever() -> None:
    story = Story()
    for _ in range(3):
        story.claim(A).fail(A)
    story.attempt = 0  # the claim does not count
    assert broken(story.claim(A).complete(A)) == {"I7"}


def test_i7_a_last_attempt_that_is_pardoned_twice() -> None:
    story = Story().claim(A).fail(A).claim(A).fail(A)
    for _ in range(3):
        story.attempt = 2
        story.claim(A).line("kill", of=1).recover(B, attempt_new=2)
    assert broken(story.claim(B).complete(B)) == {"I7"}


def test_i7_an_exhausted_job_that_runs() -> None:
    story = Story(kind="deadly", max_attempts=1).claim(A).line("kill", of=1).recover(B).claim(B)
    story.line("start", B, job=1, seq=story.seq, attempt=1, kind="deadly")
    assert broken(story.die(B)) == {"I7"}


def test_i7_a_dead_job_without_a_reason() -> None:
    assert broken(Story().claim(A).change("FAILED", actor=A)) == {"I7"}


def test_i9_a_worker_was_told_something_else() -> None:
    story = Story().claim(A).line("completed", A, job_id=1).wait(LEASE).recover(B).claim(B)
    assert broken(story.die(B)) == {"I9"}


def test_i12_a_lease_that_ended_long_ago() -> None:
    assert broken(Story().claim(A).wait(LEASE + 4.0).recover(B).claim(B).complete(B)) == {"I12"}


def test_i12_does_not_count_the_time_that_the_server_was_away() -> None:
    story = Story().claim(A).wait(LEASE + 4.0)
    story.recover(B, server_since=story.now - 2.0)
    assert broken(story.claim(B).complete(B)) == set()
