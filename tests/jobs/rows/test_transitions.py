"""The transition table of docs/transitions.md as data: what is listed happens, what is not listed is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from psycopg import errors as pg

from snapapp.jobs.errors import IllegalTransition
from snapapp.jobs.model import Buried, Failure, Finished, Job, Retried, Snoozed, Stopped, Succeeded
from snapapp.jobs.rows import leases, lifecycle, notes, settle
from snapapp.jobs.rows.claim import Look
from tests import ROOT
from tests.factory import Db, ago, claimed, hand_back, hence, job, make_job, move, row

pytestmark = pytest.mark.both_servers_at_length

DOCUMENT = ROOT / "docs" / "transitions.md"

OOPS = Failure("oops")
DELAY = timedelta(seconds=1)


# Every state that the rules tell apart. Each row begins with 2 of 3 attempts, 1 interruption and lease_seq 5; a running
# one has been lost once before.
STATES: dict[str, dict[str, Any]] = {
    "PENDING": {},
    "PENDING, suspect": {"losses": 2, "gate": "alone"},
    "PENDING, a child": {"gate": "after", "waits_for": 1},
    "RETRY_WAIT": {},
    "RETRY_WAIT, suspect": {"losses": 2, "gate": "alone"},
    "RUNNING": {"lock_expires_at": ago(seconds=1), "started_at": ago(minutes=1), "losses": 1},
    "RUNNING, unwanted": {
        "lock_expires_at": ago(seconds=1),
        "cancel_requested_at": ago(),
        "started_at": ago(minutes=1),
        "losses": 1,
    },
    "COMPLETED": {},
    "FAILED": {},
    "CANCELLED": {},
}


class To(NamedTuple):
    """Where a step leads; a status always moves on to a higher lease_seq, and nothing else does."""

    status: str
    attempts: int = 2
    interruptions: int = 1
    losses: int = 0
    gate: str = "open"
    lease_seq: int = 6


class Step(NamedTuple):
    call: Callable[[Db, Job], object]
    table: dict[str, To]


SAME = 5  # the lease_seq of a step that leaves the status as it is


def settled(outcome: Any) -> Callable[[Db, Job], object]:
    return lambda db, held: settle.settle(db, Finished(held, outcome, 0.1))


def released(*, ran: bool) -> Callable[[Db, Job], object]:
    return lambda db, held: leases.release(db, "worker", [held.id] if ran else [])


def handed_back(*, started: bool, allowed: int = 9) -> Callable[[Db, Job], object]:
    return lambda db, held: hand_back(db, held, started=started, allowed=allowed)


RUNS = To("RUNNING", attempts=3)
CANCELLED = To("CANCELLED")
STILL = dict.fromkeys(["RUNNING", "RUNNING, unwanted"], To("RUNNING", losses=1, lease_seq=SAME))
SUSPECTS = ("PENDING, suspect", "RETRY_WAIT, suspect")
LOST = To("RETRY_WAIT", losses=2, gate="alone")

STEPS = {
    "claim": Step(lambda db, held: claimed(db), {"PENDING": RUNS, "RETRY_WAIT": RUNS}),
    "claim, of a suspect": Step(
        lambda db, held: claimed(db, look=Look(takes_suspect=True)),
        dict.fromkeys(SUSPECTS, RUNS._replace(losses=2, gate="alone")),
    ),
    "beat": Step(lambda db, held: leases.beat(db, [held.lease], [1.0], DELAY), STILL),
    "progress": Step(lambda db, held: notes.progress(db, {held.lease: "1"}), STILL),
    "complete": Step(settled(Succeeded(None)), {"RUNNING": To("COMPLETED"), "RUNNING, unwanted": To("COMPLETED")}),
    "retry": Step(settled(Retried(OOPS, DELAY)), {"RUNNING": To("RETRY_WAIT"), "RUNNING, unwanted": CANCELLED}),
    "bury": Step(settled(Buried(OOPS)), {"RUNNING": To("FAILED"), "RUNNING, unwanted": CANCELLED}),
    "bury, stopped": Step(settled(Stopped(OOPS)), {"RUNNING": CANCELLED, "RUNNING, unwanted": CANCELLED}),
    "snooze": Step(
        settled(Snoozed(DELAY)),
        {"RUNNING": To("PENDING", attempts=1), "RUNNING, unwanted": To("CANCELLED", attempts=1)},
    ),
    "snooze, without a place to run": Step(
        settled(Snoozed(DELAY, ran=False)),
        {"RUNNING": To("PENDING", attempts=1, losses=1), "RUNNING, unwanted": To("CANCELLED", attempts=1)},
    ),
    "retry, where no place is as large": Step(
        settled(Retried(OOPS, DELAY, ran=False)),
        {"RUNNING": To("RETRY_WAIT", losses=1), "RUNNING, unwanted": CANCELLED},
    ),
    "hand_back, not started": Step(
        handed_back(started=False),
        {"RUNNING": To("PENDING", attempts=1, losses=1), "RUNNING, unwanted": To("CANCELLED", attempts=1)},
    ),
    "hand_back, started": Step(
        handed_back(started=True),
        {
            "RUNNING": To("PENDING", attempts=1, interruptions=2, losses=1),
            "RUNNING, unwanted": To("CANCELLED", attempts=1, interruptions=2),
        },
    ),
    "hand_back, too often": Step(
        handed_back(started=True, allowed=1),
        {"RUNNING": To("PENDING", interruptions=2, losses=1), "RUNNING, unwanted": To("CANCELLED", interruptions=2)},
    ),
    "recover": Step(
        lambda db, held: leases.recover(db), {"RUNNING": LOST, "RUNNING, unwanted": CANCELLED._replace(gate="alone")}
    ),
    "release, was running": Step(
        released(ran=True), {"RUNNING": LOST, "RUNNING, unwanted": CANCELLED._replace(gate="alone")}
    ),
    "release, not started": Step(
        released(ran=False),
        {"RUNNING": To("PENDING", attempts=1, losses=1), "RUNNING, unwanted": To("CANCELLED", attempts=1)},
    ),
    "release_unheard": Step(
        lambda db, held: leases.release_unheard(db, "worker", []),
        {"RUNNING": To("PENDING", attempts=1, losses=1), "RUNNING, unwanted": To("CANCELLED", attempts=1)},
    ),
    "run_now": Step(
        lambda db, held: lifecycle.run_now(db, held.id),
        {
            state: To(
                state.partition(",")[0], losses=its.get("losses", 0), gate=its.get("gate", "open"), lease_seq=SAME
            )
            for state, its in STATES.items()
            if state.startswith(("PENDING", "RETRY_WAIT")) and state != "PENDING, a child"
        },
    ),
    "cancel": Step(
        lambda db, held: lifecycle.cancel(db, held.id),
        {state: CANCELLED for state in STATES if state.startswith(("PENDING", "RETRY_WAIT"))}
        | dict.fromkeys(SUSPECTS, CANCELLED._replace(gate="alone"))
        | {"PENDING, a child": CANCELLED._replace(gate="after")}
        | STILL,
    ),
    "discard": Step(
        lambda db, held: lifecycle.discard(db, held.id, "by ana"),
        {state: CANCELLED for state in STATES if state.startswith(("PENDING", "RETRY_WAIT", "FAILED"))}
        | dict.fromkeys(SUSPECTS, CANCELLED._replace(gate="alone"))
        | {"PENDING, a child": CANCELLED._replace(gate="after")},
    ),
    "retry_by_person": Step(
        lambda db, held: lifecycle.retry_by_person(db, held.id),
        dict.fromkeys(["FAILED", "CANCELLED"], To("PENDING", attempts=0, interruptions=0)),
    ),
    "replay": Step(lambda db, held: lifecycle.replay(db, held.id), {}),
}


def arrange(db: Db, state: str) -> Job:
    """A row in this state, and the job as the last holder of a lease on it knows it."""
    status = state.partition(",")[0]
    made = make_job(
        db, status, **{"attempt_count": 2, "max_attempts": 3, "interruptions": 1, "lease_seq": 5} | STATES[state]
    )
    known = job(db, made)
    known.lease_seq -= status != "RUNNING"
    return known


@pytest.mark.parametrize("step", STEPS)
def test_a_step_leads_where_the_table_says_and_is_refused_elsewhere(db: Db, step: str) -> None:
    """I3, W43, W44, R6."""
    call, table = STEPS[step]
    for state in STATES:
        held = arrange(db, state)
        before = row(db, held.id)
        try:
            call(db, held)
        except IllegalTransition:
            assert step in ("retry_by_person", "run_now", "cancel", "discard")
        after = row(db, held.id)
        if state in table:
            counted = (after.attempt_count, after.interruptions, after.losses)
            is_time = step.startswith("claim") and after.lease_seq > 10**15  # microseconds, which a claim gives
            seen = To(after.status, *counted, after.gate, SAME + 1 if is_time else after.lease_seq)
            assert (state, seen) == (state, table[state])
        else:
            assert after == before
        db.execute("DELETE FROM snap_processing_job")


def test_every_step_changes_the_status_exactly_when_it_raises_the_fence() -> None:
    """Promise 2."""
    for name, step in STEPS.items():
        for state, to in step.table.items():
            changes = to.status != state.partition(",")[0]
            assert (name, to.lease_seq > SAME) == (name, changes)


@pytest.mark.parametrize("state", STATES)
def test_every_state_but_success_has_a_way_on(state: str) -> None:
    """D4, I2."""
    ways = [name for name, step in STEPS.items() if state in step.table and step.table[state].lease_seq > SAME]
    assert bool(ways) == (state != "COMPLETED")


def test_the_document_names_every_step() -> None:
    text = DOCUMENT.read_text()
    assert [step for step in STEPS if f"`{step.partition(',')[0]}`" not in text] == []


# --- illegal states cannot be written ---------------------------------------------------------------------------

ILLEGAL: list[tuple[str, str, dict[str, Any]]] = [
    ("status_is_known", "SLEEPING", {}),
    ("running_means_leased", "PENDING", {"claimed_by": "worker"}),
    ("running_means_leased", "RETRY_WAIT", {"lock_expires_at": hence(minutes=1)}),
    ("running_means_leased", "COMPLETED", {"locked_at": ago()}),
    ("running_means_leased", "RUNNING", {"claimed_by": None}),
    ("running_means_leased", "RUNNING", {"locked_at": None}),
    ("running_means_leased", "RUNNING", {"lock_expires_at": None}),
    ("status_is_known", "PENDING", {"finished_at": ago()}),
    ("status_is_known", "RUNNING", {"finished_at": ago()}),
    ("status_is_known", "RETRY_WAIT", {"finished_at": ago()}),
    ("status_is_known", "COMPLETED", {"finished_at": None}),
    ("status_is_known", "FAILED", {"finished_at": None}),
    ("status_is_known", "CANCELLED", {"finished_at": None}),
    ("status_is_known", "SLEEPING", {"finished_at": ago()}),
    ("attempts_are_sane", "PENDING", {"attempt_count": -1}),
    ("attempts_are_sane", "RUNNING", {"attempt_count": 0}),
    ("attempts_are_sane", "PENDING", {"max_attempts": 0}),
    ("attempts_are_sane", "PENDING", {"max_attempts": 1001}),
    ("attempts_are_sane", "PENDING", {"interruptions": -1}),
    ("attempts_are_sane", "PENDING", {"timeout_ms": 0}),
    ("names_are_short", "PENDING", {"kind": ""}),
    ("names_are_short", "PENDING", {"kind": "k" * 2501}),
    ("names_are_short", "PENDING", {"queue": ""}),
    ("names_are_short", "PENDING", {"queue": "q" * 2501}),
    ("names_are_short", "PENDING", {"concurrency_key": "c" * 2501}),
    ("names_are_short", "PENDING", {"tenant": "t" * 2501}),
    ("names_are_short", "PENDING", {"unique_key": "ú" * 1251, "unique_scope": "live"}),
    ("names_are_short", "PENDING", {"request_id": "r" * 2501}),
    ("gate_is_known", "PENDING", {"gate": "ajar"}),
    ("gate_is_known", "RUNNING", {"gate": "after"}),
    ("priority_is_bounded", "PENDING", {"priority": 1001}),
    ("priority_is_bounded", "PENDING", {"priority": -1001}),
    ("payload_is_capped", "PENDING", {"payload": ["p" * 2_000_000]}),
    ("values_are_capped", "FAILED", {"last_error": "e" * 4001}),
    ("values_are_capped", "RUNNING", {"progress": ["p" * 500_000]}),
    ("values_are_capped", "COMPLETED", {"result": ["r" * 7_000_000]}),
    # Python cannot read them, and nobody could list any job beside such a one
    ("times_are_moments", "PENDING", {"created_at": "infinity"}),
    ("times_are_moments", "PENDING", {"created_at": "-infinity"}),
    ("times_are_moments", "PENDING", {"created_at": "9999-12-31 23:59:59Z"}),
    ("times_are_moments", "PENDING", {"started_at": "infinity"}),
    ("times_are_moments", "COMPLETED", {"finished_at": "infinity"}),
    ("times_are_moments", "RUNNING", {"locked_at": "-infinity"}),
    ("times_are_moments", "RUNNING", {"lock_expires_at": "infinity"}),
    ("times_are_moments", "RUNNING", {"cancel_requested_at": "-infinity"}),
    ("unique_key_has_a_scope", "PENDING", {"unique_key": "k"}),
    ("unique_key_has_a_scope", "PENDING", {"unique_scope": "live"}),
    ("unique_key_has_a_scope", "PENDING", {"unique_key": "k", "unique_scope": "always"}),
]


def test_no_illegal_state_can_be_written(db: Db) -> None:
    for constraint, status, columns in ILLEGAL:
        with pytest.raises(pg.CheckViolation) as refused:
            make_job(db, status, **columns)
        assert (columns, refused.value.diag.constraint_name) == (columns, constraint)


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
def test_a_status_alone_cannot_be_changed_by_hand(db: Db, status: str) -> None:
    waiting = make_job(db)
    with pytest.raises(pg.CheckViolation):
        move(db, waiting, status=status)
