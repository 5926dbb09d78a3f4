"""Snaps: what is kept of a marked moment, how it ends, and what may still be done to one."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import idempotency, sharing, snaps, templates
from snapapp.domain.snaps import Removal
from snapapp.domain.tables import Ended, Kind, Snap, SnapStatus, Template
from snapapp.errors import Invalid, KeyReused, SnapIsShared, SnapNotFound
from snapapp.jobs.model import Buried, Failure
from snapapp.jobs.rows import lifecycle, notes, settle
from snapapp.jobs.rows.database import run
from snapapp.postgres import database as db
from tests.domain.making import BODY, EVIDENCE, OWN, acting, begun, make_snap, new_snap, process, subject
from tests.factory import Db, bury, claimed, retry

# --- marking ----------------------------------------------------------------------------------------------------


def test_a_new_snap_is_kept_as_it_was_marked(own: Session) -> None:
    """S27."""
    filmed_at = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
    new = new_snap(
        subject=subject("boi-7", brinco="A1", peso=450.5),
        filmed_at=filmed_at,
        start_seconds=1.25,
        start_frame=30,
        duration_seconds=1.0,
        clip_seconds=3.0,
        fps=10,
        max_width=640,
        format="png",
        quality=None,
        overlay={"enabled": True, "boxColor": "black@0.7"},
        request_id="r-1",
    )
    _, video = snaps.create(own, OWN, new)
    snap = snaps.read(own, OWN, new.id)
    for name in ("id", "video_url", "nickname", "email", "subject", "overlay", "request_id", "is_draft"):
        assert getattr(snap, name) == getattr(new, name)
    assert (snap.filmed_at, snap.start_seconds, snap.start_frame) == (filmed_at, 1.25, 30)
    assert (snap.duration_seconds, snap.clip_seconds, snap.fps, snap.max_width) == (1.0, 3.0, 10, 640)
    assert (snap.format, snap.quality, snap.template_id) == ("png", None, templates.resolve(own, OWN, None).id)
    assert snap.video_id == video.id
    assert (snap.kind, snap.status, snap.error, snap.job) == (Kind.INTERVAL, SnapStatus.PENDING, None, None)
    assert (snap.resolved_start_seconds, snap.frames, snap.frame_count, snap.processed_at) == (None, None, 0, None)


@pytest.mark.parametrize(
    ("duration", "clip", "kind"),
    [(1.0, 1.0, Kind.INSTANT), (0.5, 0.2, Kind.INSTANT), (1.0, 1.001, Kind.INTERVAL), (5, 5, Kind.INTERVAL)],
)
def test_a_snap_is_an_instant_while_neither_part_is_longer_than_a_second(
    own: Session, duration: float, clip: float, kind: Kind
) -> None:
    """S31."""
    assert make_snap(own, OWN, duration_seconds=duration, clip_seconds=clip).kind is kind


@pytest.mark.parametrize("given", [None, ""])
def test_a_subject_without_an_id_takes_its_snaps(own: Session, given: str | None) -> None:
    """S31."""
    snap = make_snap(own, OWN, subject=subject(given, observacoes="manco"))
    assert snap.subject.id == str(snap.id)


def test_an_operator_is_known_by_email_and_the_last_nickname_wins(own: Session) -> None:
    """S31."""
    first = make_snap(own, OWN, email="ana@example.org", nickname="Ana")
    make_snap(own, OWN, email="ANA@example.org", nickname="Aninha")
    rows = own.connection().exec_driver_sql("SELECT email, nickname FROM operator").fetchall()
    assert rows == [("ANA@example.org", "Aninha")]
    assert snaps.read(own, OWN, first.id).nickname == "Ana", "a snap keeps the name it was marked under"


def cattle(own: Session) -> Template:
    return templates.every(own, OWN)[1]


def test_a_named_template_is_enforced_and_further_attributes_are_welcome(own: Session) -> None:
    """S35."""
    named: dict[str, Any] = {"template_id": cattle(own).id}
    with pytest.raises(Invalid) as raised:
        make_snap(own, OWN, subject=subject(peso_referencia="pesado", humor="bom"), **named)
    assert raised.value.details == (
        "subject.attributes.brinco: is required",
        "subject.attributes.peso_referencia: must be a number",
    )
    snap = make_snap(own, OWN, subject=subject(brinco="A1", peso_referencia=450, humor="bom"), **named)
    assert snap.template_id == named["template_id"]


def test_a_draft_is_marked_now_and_described_later(own: Session) -> None:
    """What the template requires is asked for when it is described."""
    draft = make_snap(own, OWN, template_id=cattle(own).id, is_draft=True)
    assert draft.is_draft
    with pytest.raises(Invalid, match="brinco: is required"):
        snaps.correct(own, OWN, draft.id, subject(), by="Ana")
    described = snaps.correct(own, OWN, draft.id, subject("boi-7", brinco="A1"), by="Ana")
    assert not described.is_draft
    assert described.subject.id == "boi-7"


# --- the same request again -------------------------------------------------------------------------------------


def age_keys(engine: sqlalchemy.Engine, by: timedelta) -> None:
    with begun(engine) as session:
        run(session, "UPDATE idempotency SET created_at = created_at - %(by)s RETURNING key", {"by": by})


def create_with_key(session: Session, key: str = "k", body: bytes = BODY) -> tuple[UUID, bool]:
    snap_id = uuid4()
    held = idempotency.hold_key(session, OWN, key, body, snap_id)
    if held == snap_id:
        make_snap(session, OWN, id=snap_id)
    return held, held == snap_id


def test_a_key_that_comes_again_stands_for_the_first_snap(engine: sqlalchemy.Engine) -> None:
    """FE3, D12."""
    with acting(engine, OWN) as session:
        first, is_new = create_with_key(session)
        assert is_new
        assert create_with_key(session) == (first, False), "also within one transaction"
    with acting(engine, OWN) as session:
        assert create_with_key(session) == (first, False)
        assert create_with_key(session, "another")[1]


def test_a_key_with_another_request_is_refused_and_the_transaction_goes_on(engine: sqlalchemy.Engine) -> None:
    """FE3."""
    with acting(engine, OWN) as session:
        create_with_key(session)
        with pytest.raises(KeyReused, match="Idempotency-Key was used for another request: k"):
            create_with_key(session, body=hashlib.sha256(b"other").digest())
        make_snap(session, OWN)


def test_a_key_is_free_again_after_a_day(engine: sqlalchemy.Engine) -> None:
    with acting(engine, OWN) as session:
        first, _ = create_with_key(session)
    age_keys(engine, timedelta(hours=23, minutes=59))
    with acting(engine, OWN) as session:
        assert create_with_key(session) == (first, False)
        assert idempotency.forget_keys(session, OWN) == 0
    age_keys(engine, timedelta(minutes=2))
    with acting(engine, OWN) as session:
        second, is_new = create_with_key(session, body=hashlib.sha256(b"other").digest())
        assert is_new
        assert second != first


def test_old_keys_are_forgotten_their_snaps_stay(engine: sqlalchemy.Engine) -> None:
    with acting(engine, OWN) as session:
        first, _ = create_with_key(session)
    age_keys(engine, timedelta(hours=25))
    with acting(engine, OWN) as session:
        assert idempotency.forget_keys(session, OWN) == 1
        assert snaps.read(session, OWN, first).id == first


def test_a_request_that_failed_holds_no_key(engine: sqlalchemy.Engine) -> None:
    with db.session(engine) as session, db.scope(session, OWN):
        assert create_with_key(session)[1]
        session.rollback()
    with acting(engine, OWN) as session:
        assert create_with_key(session)[1]


# --- how it ends ------------------------------------------------------------------------------------------------


def test_evidence_is_published_whole(own: Session) -> None:
    """S29."""
    snap = make_snap(own, OWN)
    assert snaps.complete(own, OWN, snap.id, EVIDENCE)
    done = snaps.read(own, OWN, snap.id)
    assert (done.status, done.ended, done.error) == (SnapStatus.COMPLETED, Ended.COMPLETED, None)
    assert (done.probe, done.clip, done.frames) == (EVIDENCE.probe, EVIDENCE.clip, EVIDENCE.frames)
    assert (done.extras, done.media_prefix, done.frame_count) == (EVIDENCE.extras, EVIDENCE.media_prefix, 1)
    assert done.resolved_start_seconds == 12.5
    assert done.processed_at


def test_a_snap_that_is_gone_takes_no_evidence(own: Session) -> None:
    snap = make_snap(own, OWN)
    assert snaps.remove(own, OWN, snap.id) is Removal.DELETED
    assert not snaps.complete(own, OWN, snap.id, EVIDENCE)
    assert not snaps.fail(own, OWN, snap.id, "oops")


def test_evidence_that_was_shared_is_not_replaced(own: Session) -> None:
    """S33, D11: whoever processes it again."""
    snap = make_snap(own, OWN)
    sharing.share(own, OWN, snap.id)
    assert snaps.complete(own, OWN, snap.id, EVIDENCE), "a pending snap may be shared, and then ends"
    assert not snaps.complete(own, OWN, snap.id, replace(EVIDENCE, media_prefix="snaps/some/2/"))
    assert not snaps.fail(own, OWN, snap.id, "oops")
    assert snaps.read(own, OWN, snap.id).media_prefix == EVIDENCE.media_prefix


def test_evidence_that_was_not_shared_is_replaced_as_a_whole(own: Session) -> None:
    snap = make_snap(own, OWN)
    snaps.complete(own, OWN, snap.id, EVIDENCE)
    assert snaps.complete(own, OWN, snap.id, replace(EVIDENCE, media_prefix="snaps/some/2/", frames=[]))
    again = snaps.read(own, OWN, snap.id)
    assert (again.media_prefix, again.frames, again.frame_count) == ("snaps/some/2/", [], 0)


# --- its job ----------------------------------------------------------------------------------------------------


class Processed:
    """A snap and its job; settled as a worker settles, read as its tenant reads."""

    def __init__(self, engine: sqlalchemy.Engine, worker: Db) -> None:
        self._engine, self._worker = engine, worker
        with begun(engine) as session:
            with db.scope(session, OWN):
                self.id = make_snap(session, OWN).id
            self.job_id = process(session, OWN, self.id)

    @property
    def snap(self) -> Snap:
        with acting(self._engine, OWN) as session:
            return snaps.read(session, OWN, self.id)

    def claim(self) -> Any:
        [job] = claimed(self._worker, 1, kinds=["snap.process"]).jobs
        return job

    def bury(self, reason: str) -> None:
        assert bury(self._worker, self.claim(), Buried(Failure(reason)), 0.1)

    def says(self) -> tuple[SnapStatus, str | None]:
        return self.snap.status, self.snap.error


@pytest.fixture
def processed(engine: sqlalchemy.Engine, db: Db) -> Processed:
    return Processed(engine, db)


def test_until_it_ends_a_snaps_state_is_that_of_its_job(processed: Processed, db: Db) -> None:
    """S10, S18."""
    waiting = processed.snap
    assert waiting.status is SnapStatus.PENDING
    assert waiting.job
    assert (waiting.job.id, waiting.job.status, waiting.job.attempts) == (processed.job_id, "PENDING", 0)
    job = processed.claim()
    notes.progress(db, {job.lease: '{"percent": 50}'})
    running = processed.snap.job
    assert running
    assert (running.status, running.attempts, running.progress) == ("RUNNING", 1, {"percent": 50})
    retry(db, job, Failure("the host is away"), timedelta(minutes=5), 0.1)
    again = processed.snap
    assert again.job
    assert (again.status, again.job.status, again.error) == (SnapStatus.PENDING, "RETRY_WAIT", "the host is away")
    assert again.job.next_run_at > datetime.now(UTC) + timedelta(minutes=4)


def test_a_dead_letter_is_its_snaps_failure_and_the_reason_stays_when_jobs_are_pruned(
    processed: Processed, db: Db
) -> None:
    """S16, D8."""
    processed.bury("no video stream")
    assert processed.says() == (SnapStatus.FAILED, "no video stream")
    assert processed.snap.processed_at
    db.execute("DELETE FROM snap_processing_job")
    assert processed.says() == (SnapStatus.FAILED, "no video stream")
    assert processed.snap.job is None


def test_a_cancelled_snap_says_by_whom(processed: Processed, engine: sqlalchemy.Engine, db: Db) -> None:
    with acting(engine, OWN) as session:
        snaps.note_cancel(session, OWN, processed.id, "Ana")
    lifecycle.cancel(db, processed.job_id)
    assert processed.says() == (SnapStatus.FAILED, "Cancelled by Ana")
    assert processed.snap.ended is Ended.CANCELLED


def test_a_snap_cancelled_by_nobody_in_particular_says_that(processed: Processed, db: Db) -> None:
    lifecycle.cancel(db, processed.job_id)
    assert processed.says() == (SnapStatus.FAILED, "Cancelled")


def test_a_snap_whose_job_is_retried_by_a_person_waits_again(processed: Processed, db: Db) -> None:
    processed.bury("no video stream")
    lifecycle.retry_by_person(db, processed.job_id)
    assert processed.says() == (SnapStatus.PENDING, "no video stream")
    assert processed.snap.processed_at is None
    processed.bury("still none")
    assert processed.says() == (SnapStatus.FAILED, "still none")


def test_a_snap_whose_job_is_replayed_waits_again(processed: Processed, db: Db) -> None:
    processed.bury("no video stream")
    lifecycle.replay(db, processed.job_id)
    assert processed.says() == (SnapStatus.PENDING, None)


def test_evidence_stays_whatever_becomes_of_a_replay(processed: Processed, engine: sqlalchemy.Engine, db: Db) -> None:
    job = processed.claim()
    settle.complete(db, [(job.lease, None, 0.1)])
    with acting(engine, OWN) as session:
        snaps.complete(session, OWN, processed.id, EVIDENCE)
    lifecycle.replay(db, processed.job_id)
    assert processed.says() == (SnapStatus.COMPLETED, None)
    processed.bury("the host is away")
    assert processed.says() == (SnapStatus.COMPLETED, None)


def test_the_end_of_an_older_job_is_not_the_snaps(processed: Processed, db: Db) -> None:
    """One snap is one job; where somebody made two, the newest counts."""
    older = processed.claim()
    db.execute("SELECT replay_job(%s)", [processed.job_id])
    assert bury(db, older, Buried(Failure("too late")), 0.1)
    assert processed.says() == (SnapStatus.PENDING, None)


def test_other_work_for_a_snap_says_nothing_about_it(processed: Processed, db: Db) -> None:
    row = db.execute(
        "SELECT enqueue_job('snap.webhook', tenant => 'default', snap_id => %s)", [processed.id]
    ).fetchone()
    assert row
    lifecycle.cancel(db, row[0])
    snap = processed.snap
    assert (snap.status, snap.error) == (SnapStatus.PENDING, None)
    assert snap.job
    assert snap.job.id == processed.job_id


def test_a_processors_own_words_replace_the_jobs(processed: Processed, engine: sqlalchemy.Engine) -> None:
    processed.bury("Unusable: moov atom not found")
    with acting(engine, OWN) as session:
        assert snaps.fail(session, OWN, processed.id, "The file ends in the middle: upload it again.\0\ud800")
    assert processed.says()[1] == "The file ends in the middle: upload it again.?"


def test_a_job_in_the_far_future_can_be_read(processed: Processed, db: Db) -> None:
    db.execute("UPDATE snap_processing_job SET next_retry_at = 'infinity'")
    job = processed.snap.job
    assert job
    assert job.next_run_at.year == 9999


# --- corrections ------------------------------------------------------------------------------------------------


def test_a_correction_is_written_down_and_found_by(own: Session) -> None:
    """S33."""
    snap = make_snap(own, OWN, subject=subject("boi-7", brinco="A1"))
    corrected = snaps.correct(own, OWN, snap.id, subject("boi-8", brinco="B2", peso=400), by="ana@example.org")
    assert corrected.subject == subject("boi-8", brinco="B2", peso=400)
    snaps.correct(own, OWN, snap.id, subject(None), by="bob@example.org")
    first, second = snaps.corrections(own, OWN, snap.id)
    assert (first.by, first.before, first.after) == (
        "ana@example.org",
        subject("boi-7", brinco="A1").as_json(),
        subject("boi-8", brinco="B2", peso=400).as_json(),
    )
    assert (second.by, second.after["id"]) == ("bob@example.org", str(snap.id))
    assert own.connection().exec_driver_sql("SELECT count(*) FROM subject_attribute").scalar() == 0


def test_what_was_ever_shared_is_not_corrected(own: Session) -> None:
    """S33: also when its link was revoked since."""
    snap = make_snap(own, OWN)
    sharing.share(own, OWN, snap.id)
    for _ in range(2):
        with pytest.raises(SnapIsShared):
            snaps.correct(own, OWN, snap.id, subject("boi-8"), by="Ana")
        sharing.revoke(own, OWN, snap.id)
    assert snaps.corrections(own, OWN, snap.id) == []


def test_a_snap_says_whether_it_was_ever_shared(own: Session) -> None:
    snap = make_snap(own, OWN)
    assert not snap.is_shared
    sharing.share(own, OWN, snap.id)
    sharing.revoke(own, OWN, snap.id)
    assert snaps.read(own, OWN, snap.id).is_shared


# --- removing ---------------------------------------------------------------------------------------------------


def test_a_snap_that_was_never_shared_is_deleted_with_all_that_was_its_own(own: Session) -> None:
    snap_id = idempotency.hold_key(own, OWN, "k", BODY, uuid4())
    make_snap(own, OWN, id=snap_id, subject=subject("boi-7", brinco="A1"))
    snaps.correct(own, OWN, snap_id, subject("boi-8", brinco="A1"), by="Ana")
    assert snaps.remove(own, OWN, snap_id) is Removal.DELETED
    for table in ("snap", "subject_attribute", "subject_word", "correction", "idempotency"):
        assert own.connection().exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0
    with pytest.raises(SnapNotFound):
        snaps.remove(own, OWN, snap_id)


def test_a_snap_that_was_shared_is_hidden_and_its_link_goes_on(engine: sqlalchemy.Engine) -> None:
    """S33."""
    with acting(engine, OWN) as own:
        snap = make_snap(own, OWN)
        link = sharing.share(own, OWN, snap.id)
        assert snaps.remove(own, OWN, snap.id) is Removal.HIDDEN
        for touch in (
            lambda: snaps.read(own, OWN, snap.id),
            lambda: snaps.remove(own, OWN, snap.id),
            lambda: snaps.correct(own, OWN, snap.id, subject(), by="Ana"),
            lambda: sharing.share(own, OWN, snap.id),
        ):
            with pytest.raises(SnapNotFound):
                touch()
        assert snaps.read_many(own, OWN, [snap.id]) == []
    with begun(engine) as session:
        assert sharing.read_public(session, link.token).id == snap.id


def test_an_id_that_never_existed_is_not_found_and_named(own: Session) -> None:
    nowhere = uuid4()
    with pytest.raises(SnapNotFound) as raised:
        snaps.read(own, OWN, nowhere)
    assert str(raised.value) == f"Snap not found: {nowhere}"


def test_many_are_read_in_the_order_asked_for(own: Session) -> None:
    made = [make_snap(own, OWN).id for _ in range(3)]
    wanted = [made[2], uuid4(), made[0], made[1]]
    assert [snap.id for snap in snaps.read_many(own, OWN, wanted)] == [made[2], made[0], made[1]]
    assert snaps.read_many(own, OWN, []) == []
