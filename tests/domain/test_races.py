"""Two at once: real connections, real locks. Each test runs its race several times, because once proves little."""

import re
import runpy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy
import sqlalchemy.orm

from snapapp.domain import idempotency, operators, sharing, snaps, videos, webhooks
from snapapp.domain.snaps import Removal
from snapapp.domain.tables import OperatorRole
from snapapp.errors import Conflict, KeyReused, SnapIsShared, SnapNotFound, VideoHasSnaps, VideoNotFound
from snapapp.postgres import database as tenancy
from snapapp.processing import queue
from tests.domain.making import BODY, EVIDENCE, OWN, acting, an_upload, begun, make_snap, process, subject
from tests.factory import Db, at_once, scalar
from tests.jobs.working import until

ROUNDS = range(5)


def committed(engine: sqlalchemy.Engine, **given: Any) -> UUID:
    with acting(engine, OWN) as session:
        return make_snap(session, OWN, **given).id


def test_of_many_that_name_a_url_at_once_one_makes_the_video(engine: sqlalchemy.Engine) -> None:
    """S31."""

    def name(round_: int) -> UUID:
        with acting(engine, OWN) as session:
            return videos.at_url(session, OWN, f"https://example.org/{round_}.mp4").id

    for round_ in ROUNDS:
        assert len(set(at_once(*[partial(name, round_)] * 4))) == 1


def test_of_many_that_upload_the_same_bytes_at_once_one_makes_the_video(engine: sqlalchemy.Engine) -> None:
    """FE3."""

    def upload(content: bytes) -> UUID:
        with acting(engine, OWN) as session:
            return videos.add_upload(session, OWN, an_upload(content)).id

    for round_ in ROUNDS:
        assert len(set(at_once(*[partial(upload, bytes([round_]))] * 4))) == 1


def test_of_many_operators_with_one_email_at_once_there_is_one(engine: sqlalchemy.Engine, db: Db) -> None:
    """S31."""

    def mark(email: str) -> None:
        with acting(engine, OWN) as session:
            make_snap(session, OWN, email=email, nickname=f"As {email}")

    for round_ in ROUNDS:
        email = f"ana{round_}@example.org"
        at_once(*[partial(mark, email), partial(mark, email.upper())] * 2)
        assert scalar(db, "SELECT count(*) FROM operator WHERE email_lower = %s", email) == 1


def test_a_mark_that_waits_while_its_operator_gets_a_link_does_not_rename_them(
    engine: sqlalchemy.Engine, db: Db
) -> None:
    """Or each mark that they then make in their own name would be refused."""
    committed(engine, nickname="aninha")
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            operators.add(first, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(committed, engine, nickname="Bob")
            until_somebody_waits(db)
            first.commit()
            waiting.result(timeout=30)
    assert scalar(db, "SELECT array_agg(nickname) FROM operator") == ["Ana"]


def test_of_many_requests_with_one_key_at_once_one_makes_a_snap_and_its_job(engine: sqlalchemy.Engine, db: Db) -> None:
    """FE3."""
    for round_ in ROUNDS:
        key = f"key {round_}"
        made = at_once(*[partial(post, engine, key)] * 8)
        assert len(set(made)) == 1
        assert scalar(db, "SELECT count(*) FROM snap") == scalar(db, "SELECT count(*) FROM snap_processing_job")
        assert scalar(db, "SELECT count(*) FROM snap") == round_ + 1


def post(engine: sqlalchemy.Engine, key: str, body: bytes = BODY) -> UUID:
    """As the HTTP layer does it."""
    snap_id = uuid4()
    with begun(engine) as session:
        with tenancy.scope(session, OWN):
            held = idempotency.hold_key(session, OWN, key, body, snap_id)
            if held != snap_id:
                return snaps.read(session, OWN, held).id
            make_snap(session, OWN, id=snap_id)
        process(session, OWN, snap_id)
    return snap_id


def test_of_two_requests_with_one_key_and_different_bodies_at_once_one_is_refused(engine: sqlalchemy.Engine) -> None:
    def ask(key: str, body: bytes) -> object:
        try:
            return post(engine, key, body)
        except KeyReused:
            return KeyReused

    for round_ in ROUNDS:
        answers = at_once(*[partial(ask, f"key {round_}", body * 32) for body in (b"a", b"b")])
        assert answers.count(KeyReused) == 1


def test_of_two_requests_with_a_key_of_yesterday_at_once_one_takes_it(engine: sqlalchemy.Engine, db: Db) -> None:
    for round_ in ROUNDS:
        post(engine, f"key {round_}")
        db.execute("UPDATE idempotency SET created_at = created_at - interval '25 hours'")
        assert len(set(at_once(*[partial(post, engine, f"key {round_}")] * 3))) == 1


def test_shared_twice_at_once_there_is_one_link(engine: sqlalchemy.Engine) -> None:
    """S23."""
    for _ in ROUNDS:
        snap_id = committed(engine)
        [token] = set(at_once(*[partial(share, engine, snap_id)] * 4))
        assert re.fullmatch("[0-9a-f]{32}", str(token))


def share(engine: sqlalchemy.Engine, snap_id: UUID) -> object:
    with acting(engine, OWN) as session:
        try:
            return sharing.share(session, OWN, snap_id).token
        except SnapNotFound as error:
            return type(error)


def correct(engine: sqlalchemy.Engine, snap_id: UUID) -> object:
    with acting(engine, OWN) as session:
        try:
            return snaps.correct(session, OWN, snap_id, subject("corrected"), by="Ana").subject.id
        except SnapIsShared as error:
            return type(error)


def remove(engine: sqlalchemy.Engine, snap_id: UUID) -> object:
    with acting(engine, OWN) as session:
        return snaps.remove(session, OWN, snap_id)


def complete(engine: sqlalchemy.Engine, snap_id: UUID) -> object:
    with acting(engine, OWN) as session:
        return snaps.complete(session, OWN, snap_id, EVIDENCE)


@pytest.mark.parametrize(
    ("change", "too_late"),
    [(correct, SnapIsShared), (remove, Removal.HIDDEN), (complete, False)],
    ids=["correct", "remove", "complete again"],
)
def test_whoever_waits_while_a_snap_is_shared_sees_that_it_was(
    engine: sqlalchemy.Engine, db: Db, change: Callable[[sqlalchemy.Engine, UUID], object], too_late: object
) -> None:
    """S33: a statement that waited for a lock still sees what was there before it waited."""
    snap_id = committed(engine)
    complete(engine, snap_id)
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            sharing.share(first, OWN, snap_id)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(change, engine, snap_id)
            until_somebody_waits(db)
            first.commit()
            assert waiting.result(timeout=30) == too_late


def test_a_snap_that_is_being_shared_keeps_its_files(engine: sqlalchemy.Engine, db: Db) -> None:
    """S33: whoever parts with old files waits for nobody, and does not take what has a link by now."""
    snap_id = committed(engine)
    complete(engine, snap_id)
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            sharing.share(first, OWN, snap_id)
        with ThreadPoolExecutor(1) as thread:
            parted = thread.submit(part, engine)
            until(lambda: parted.done() or somebody_waits(db))
            first.commit()
            assert parted.result(timeout=30) == []
    assert scalar(db, "SELECT media_prefix FROM snap") == EVIDENCE.media_prefix


def part(engine: sqlalchemy.Engine) -> object:
    with acting(engine, OWN) as session:
        return snaps.expire(session, OWN, datetime.now(UTC) + timedelta(days=1), 100)


def somebody_waits(db: Db) -> bool:
    return bool(scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted"))


def until_somebody_waits(db: Db) -> None:
    until(lambda: somebody_waits(db))


def an_operator(db: sqlalchemy.orm.Session) -> None:
    operators.add(db, OWN, "Ana", f"{uuid4()}@example.org", OperatorRole.OPERATOR)


def a_webhook(db: sqlalchemy.orm.Session) -> None:
    webhooks.add(db, OWN, "https://example.org/", ["snap.completed"])


@pytest.mark.parametrize(
    ("of", "add"), [(operators, an_operator), (webhooks, a_webhook)], ids=["operators", "webhooks"]
)
def test_of_two_that_add_the_last_one_of_a_tenant_at_once_one_is_refused(
    engine: sqlalchemy.Engine, db: Db, monkeypatch: pytest.MonkeyPatch, of: Any, add: Callable[..., None]
) -> None:
    def another() -> type[Exception] | None:
        try:
            with acting(engine, OWN) as session:
                add(session)
        except Conflict as error:
            return type(error)
        return None

    monkeypatch.setattr(of, "MOST", 1)
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            add(first)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(another)
            until(lambda: waiting.done() or somebody_waits(db))
            first.commit()
            assert waiting.result(timeout=30) is Conflict


def test_whoever_waits_to_share_while_a_snap_is_deleted_finds_none(engine: sqlalchemy.Engine, db: Db) -> None:
    snap_id = committed(engine)
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            snaps.remove(first, OWN, snap_id)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(share, engine, snap_id)
            until_somebody_waits(db)
            first.commit()
            assert waiting.result(timeout=30) is SnapNotFound


def test_whoever_waits_to_mark_a_moment_of_a_video_that_is_deleted_finds_none(
    engine: sqlalchemy.Engine, db: Db
) -> None:
    """Named by its URL it is made anew."""

    def mark(**given: Any) -> type[Exception] | UUID:
        try:
            with acting(engine, OWN) as session:
                return make_snap(session, OWN, **given).video_id
        except VideoNotFound as error:
            return type(error)

    url = "https://example.org/gone.mp4"
    with acting(engine, OWN) as session:
        video_id = videos.at_url(session, OWN, url).id
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            videos.delete(first, OWN, video_id)
        with ThreadPoolExecutor(2) as threads:
            by_id, by_url = threads.submit(mark, video_id=video_id), threads.submit(mark, video_url=url)
            until(lambda: scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 2)
            first.commit()
            assert by_id.result(timeout=30) is VideoNotFound
            assert by_url.result(timeout=30) not in (VideoNotFound, video_id)


def test_a_video_of_which_a_moment_is_being_marked_is_not_deleted(engine: sqlalchemy.Engine, db: Db) -> None:
    def delete(video_id: UUID) -> type[Exception] | None:
        try:
            with acting(engine, OWN) as session:
                videos.delete(session, OWN, video_id)
        except VideoHasSnaps as error:
            return type(error)
        return None

    with acting(engine, OWN) as session:
        video_id = videos.at_url(session, OWN, "https://example.org/stays.mp4").id
    with tenancy.session(engine) as first:
        with tenancy.scope(first, OWN):
            make_snap(first, OWN, video_id=video_id)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(delete, video_id)
            until_somebody_waits(db)
            first.commit()
            assert waiting.result(timeout=30) is VideoHasSnaps


def test_what_is_deleted_is_not_shared_and_what_is_shared_is_not_deleted(engine: sqlalchemy.Engine) -> None:
    for _ in ROUNDS:
        snap_id = committed(engine)
        shared, removed = at_once(partial(share, engine, snap_id), partial(remove, engine, snap_id))
        assert (shared is SnapNotFound) == (removed is Removal.DELETED)


def test_statements_that_requests_share_have_their_columns_before_the_first_request() -> None:
    """They are made when they are first asked for. Of the first two marks of a process each made its own, and then no
    mark found the columns of the statement that was kept."""
    job = sqlalchemy.inspect(runpy.run_path(str(snaps.__file__))["_JOB"]).selectable  # as a new process has it
    row = runpy.run_path(str(queue.__file__))["_ROW"]
    assert ["c" in vars(job), "c" in vars(row)] == [True, True]
