"""Two walls keep a foreign tenant out: the condition on tenant in every statement, and row level security. Each is
tried here without the other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import idempotency, operators, sharing, snaps, storage_use, templates, videos, webhooks
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Window
from snapapp.domain.finding.search import Criteria
from snapapp.domain.tables import OperatorRole, Snap, SnapStatus
from snapapp.errors import LinkWrong, NotFound
from snapapp.postgres import database as db
from tests.databases import Postgres
from tests.domain.conftest import Furnished
from tests.domain.making import BODY, EVIDENCE, Everything, acting, an_upload, begun, make_snap, new_snap, subject

TABLES = [
    *("operator", "template", "video", "snap", "subject_attribute", "subject_word"),
    *("share", "correction", "idempotency", "webhook"),
]
DOORS = {"tenant", "share"}  # where the owner finds out who somebody is


def tenants_seen(session: Session, table: str) -> set[str]:
    column = "code" if table == "tenant" else "tenant"
    columns = "code" if table == "tenant" else "*"
    session.connection().exec_driver_sql(
        f"SELECT {columns} FROM {table}"
    ).fetchall()  # all that may be seen can be read
    return {name for (name,) in session.connection().exec_driver_sql(f"SELECT DISTINCT {column} FROM {table}")}


@pytest.fixture
def url(server: Postgres, furnished: Furnished) -> Iterator[str]:
    with server.database(furnished.database) as url:
        yield url


@pytest.fixture
def north(furnished: Furnished) -> Everything:
    return furnished.north


@pytest.fixture
def south(furnished: Furnished) -> Everything:
    return furnished.south


@contextmanager
def refused(session: Session, why: type[Exception] = psycopg.errors.InsufficientPrivilege) -> Iterator[None]:
    with pytest.raises(sqlalchemy.exc.DBAPIError) as raised, session.begin_nested():
        yield
    assert isinstance(raised.value.orig, why)


# --- row level security alone -----------------------------------------------------------------------------------


def test_every_table_that_belongs_to_tenants_has_its_wall(engine: sqlalchemy.Engine) -> None:
    """S24, M47: also a table that somebody adds one day."""
    with begun(engine) as session:
        rows = (
            session.connection()
            .exec_driver_sql(
                """
            SELECT relname, relrowsecurity, relforcerowsecurity,
                   (SELECT count(*) FROM pg_policy WHERE polrelid = it.oid)
              FROM pg_class AS it
             WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
               AND (relname = 'tenant' OR relname NOT LIKE '%%job%%'
                   AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = it.oid AND attname = 'tenant'))
            """
            )
            .fetchall()
        )
    assert {row[0] for row in rows} == {*TABLES, "tenant"}
    assert [row for row in rows if row[1:] != (True, row[0] not in DOORS, 1)] == []


@pytest.mark.parametrize("table", ["tenant", *TABLES])
def test_within_a_scope_a_statement_without_a_condition_sees_one_tenant(
    engine: sqlalchemy.Engine, north: Everything, south: Everything, table: str
) -> None:
    """S24."""
    with acting(engine, "north") as session:
        assert tenants_seen(session, table) == {"north"}
    with begun(engine) as session:
        assert tenants_seen(session, table) >= {"north", "south"}


@pytest.mark.parametrize("table", [name for name in TABLES if name != "correction"])
def test_within_a_scope_nothing_of_another_tenant_can_be_changed(
    engine: sqlalchemy.Engine, north: Everything, south: Everything, table: str
) -> None:
    with acting(engine, "north") as session:
        if table not in ("subject_attribute", "subject_word"):  # which are only made and deleted
            changed = session.connection().exec_driver_sql(f"UPDATE {table} SET tenant = tenant WHERE tenant = 'south'")
            assert changed.rowcount == 0
        if table in ("video", "snap", "subject_attribute", "subject_word", "idempotency", "webhook"):
            assert session.connection().exec_driver_sql(f"DELETE FROM {table} WHERE tenant = 'south'").rowcount == 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO operator (tenant, email, nickname) VALUES ('south', 'x@example.org', 'X')",
        "INSERT INTO template (tenant, slug, name) VALUES ('south', 'x', 'X')",
        "INSERT INTO video (tenant, url, url_hash) VALUES ('south', 'x', sha256('x'))",
        "INSERT INTO webhook (tenant, url, secret, events) VALUES ('south', 'x', repeat('x', 16), '{x}')",
        "INSERT INTO idempotency (tenant, key, body_hash, snap_id) SELECT 'south', 'x', '', gen_random_uuid()",
        "INSERT INTO correction (tenant, snap_id, by, before, after) SELECT 'south', gen_random_uuid(), '', '{}', '{}'",
        "INSERT INTO subject_word (tenant, snap_id, word) VALUES ('south', gen_random_uuid(), 'x')",
        "INSERT INTO share (tenant, snap_id, token) VALUES ('south', gen_random_uuid(), repeat('a', 32))",
        "UPDATE operator SET tenant = 'south'",
        "UPDATE webhook SET tenant = 'south'",
    ],
)
def test_within_a_scope_nothing_can_be_written_for_another_tenant(
    engine: sqlalchemy.Engine, north: Everything, south: Everything, statement: str
) -> None:
    with acting(engine, "north") as session, refused(session):
        session.connection().exec_driver_sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM snap_processing_job",
        "SELECT FROM job_log",
        "SELECT token_hash FROM tenant",
        "INSERT INTO tenant (code, name) VALUES ('x', 'X')",
        "UPDATE tenant SET name = 'X'",
        "DELETE FROM share",
        "UPDATE correction SET by = 'nobody'",
        "DELETE FROM correction",
        "SELECT enqueue_job('snap.process')",
        "DROP TABLE snap",
    ],
)
def test_the_tenant_role_may_do_what_its_functions_need_and_no_more(
    engine: sqlalchemy.Engine, north: Everything, statement: str
) -> None:
    with acting(engine, "north") as session, refused(session):
        session.connection().exec_driver_sql(statement)


def test_a_tenant_sees_the_jobs_of_its_own_snaps_only(
    engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> None:
    """S18: through a view, with the owner's rights."""
    with acting(engine, "north") as session:
        seen = session.connection().exec_driver_sql("SELECT tenant, snap_id FROM snap_job").fetchall()
    assert seen == [("north", north.draft.id)]


# --- every function, with one wall only -------------------------------------------------------------------------

Call = Callable[[Session, str, Everything], Any]

# What each does with the ids of somebody else; a list is expected to be empty, everything else not to be found.
BY_ID: dict[str, Call] = {
    "videos.read": lambda db, who, its: videos.read(db, who, its.snap.video_id),
    "videos.resolve": lambda db, who, its: videos.resolve(db, who, video_id=its.snap.video_id, video_url=None),
    "videos.set_probe": lambda db, who, its: videos.set_probe(db, who, its.snap.video_id, {"stolen": True}),
    "videos.delete": lambda db, who, its: videos.delete(db, who, its.upload.id),
    "templates.read": lambda db, who, its: templates.read(db, who, its.template_id),
    "templates.resolve": lambda db, who, its: templates.resolve(db, who, its.template_id),
    "snaps.read": lambda db, who, its: snaps.read(db, who, its.snap.id),
    "snaps.correct": lambda db, who, its: snaps.correct(db, who, its.draft.id, subject(), by="thief"),
    "snaps.remove": lambda db, who, its: snaps.remove(db, who, its.draft.id),
    "sharing.share": lambda db, who, its: sharing.share(db, who, its.snap.id),
    "sharing.revoke": lambda db, who, its: sharing.revoke(db, who, its.snap.id),
    "operators.renew_link": lambda db, who, its: operators.renew_link(db, who, its.operator_id),
    "operators.revoke": lambda db, who, its: operators.revoke(db, who, its.operator_id),
    "webhooks.read": lambda db, who, its: webhooks.read(db, who, its.webhook_id),
    "webhooks.change": lambda db, who, its: webhooks.change(db, who, its.webhook_id, is_active=False),
    "webhooks.remove": lambda db, who, its: webhooks.remove(db, who, its.webhook_id),
}

ONE = Window(limit=1)


def since(db: Session, its: Everything) -> datetime:
    """When its operator's link was made: as the same words of another tenant were."""
    [(since,)] = db.connection().exec_driver_sql("SELECT max(link_changed_at) FROM operator")
    return since or datetime.now(UTC)


EMPTY: dict[str, Call] = {
    "snaps.read_many": lambda db, who, its: snaps.read_many(db, who, [its.snap.id, its.draft.id]),
    "snaps.corrections": lambda db, who, its: snaps.corrections(db, who, its.snap.id),
    "snaps.complete": lambda db, who, its: snaps.complete(db, who, its.draft.id, EVIDENCE),
    "snaps.fail": lambda db, who, its: snaps.fail(db, who, its.draft.id, "stolen"),
    "snaps.note_cancel": lambda db, who, its: snaps.note_cancel(db, who, its.draft.id, "thief"),
    "operators.signed_in": lambda db, who, its: operators.signed_in(db, who, its.operator_id, since(db, its)),
    "sharing.in_force": lambda db, who, its: sharing.in_force(db, who, its.snap.id),
    "search.of_video, more": lambda db, who, its: search.of_video(db, who, its.snap.video_id, ONE).has_more,
    "search.of_video": lambda db, who, its: search.of_video(db, who, its.snap.video_id).items,
}

# The same words are everybody's: whose answer is it? A page of one, because what a list picks is read once more by its
# ids: were others' among them, there would be more.
OWN: dict[str, Call] = {
    "id": lambda db, who, its: search.by_subject(db, who, Criteria(subject_id="boi-7"), ONE),
    "text": lambda db, who, its: search.by_subject(db, who, Criteria(attr_key="brinco", attr_value="A1"), ONE),
    "number": lambda db, who, its: search.by_subject(
        db, who, Criteria(attr_key="peso_referencia", attr_value="450.5"), ONE
    ),
    "range": lambda db, who, its: search.by_subject(db, who, Criteria(attr_key="peso_referencia", attr_min=400), ONE),
    "words": lambda db, who, its: search.by_subject(db, who, Criteria(q="boi a1"), ONE),
    "completed": lambda db, who, its: search.recent(db, who, ONE, Criteria(status=SnapStatus.COMPLETED)),
    "nickname": lambda db, who, its: search.recent(db, who, ONE, nickname="only one"),
}


def ids(page: Any) -> set[Any]:
    return {snap.id for snap in page.items}


def state(engine: sqlalchemy.Engine, tenant: str) -> list[Any]:
    """All that a tenant has."""
    with begun(engine) as session:
        return [
            sorted(
                str(row)
                for row in session.connection().exec_driver_sql(f"SELECT * FROM {table} WHERE tenant = '{tenant}'")
            )
            for table in TABLES
        ]


WALLS = {
    # the scope is north's, the statements are told that it is south who asks for what is south's
    "row level security alone": ("north", "south"),
    # no scope, and a superuser at that: only the statements' own condition is left
    "the condition alone": (None, "north"),
}


@pytest.fixture(params=WALLS)
def wall(
    request: pytest.FixtureRequest, engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> Iterator[tuple[Session, str]]:
    """A session with one of the walls, and as whom the functions are called. What was not there before is not there
    afterwards either, and what was is as it was."""
    scope, caller = WALLS[request.param]
    before = state(engine, "south")
    with begun(engine) as session, db.scope(session, scope) if scope else nullcontext():
        yield session, caller
    assert state(engine, "south") == before


@pytest.mark.parametrize("name", BY_ID)
def test_what_is_anothers_is_not_found(wall: tuple[Session, str], south: Everything, name: str) -> None:
    """S24: with the words of an id that never existed."""
    session, caller = wall
    with pytest.raises(NotFound, match="not found: "):
        BY_ID[name](session, caller, south)


def test_anothers_link_signs_in_nobody(wall: tuple[Session, str], south: Everything) -> None:
    session, caller = wall
    with pytest.raises(LinkWrong):
        operators.by_link(session, caller, south.personal_link)


@pytest.mark.parametrize("name", EMPTY)
def test_of_what_is_anothers_there_is_nothing(wall: tuple[Session, str], south: Everything, name: str) -> None:
    session, caller = wall
    assert not EMPTY[name](session, caller, south)


@pytest.mark.parametrize("name", OWN)
def test_a_search_without_a_scope_finds_ones_own(
    engine: sqlalchemy.Engine, north: Everything, south: Everything, name: str
) -> None:
    with begun(engine) as session:
        for its in (north, south):
            values = {"id": its.snap.id, "name": "Only One"}
            session.connection().exec_driver_sql("UPDATE snap SET nickname = %(name)s WHERE id = %(id)s", values)
        found = OWN[name](session, "north", north)
    assert (ids(found), found.has_more) == ({north.snap.id}, False)


@pytest.mark.parametrize("name", OWN)
def test_a_search_that_claims_to_be_another_finds_nothing_within_a_scope(
    engine: sqlalchemy.Engine, north: Everything, south: Everything, name: str
) -> None:
    with acting(engine, "north") as session:
        assert OWN[name](session, "south", south).items == []


def test_lists_without_a_scope_hold_ones_own(engine: sqlalchemy.Engine, north: Everything, south: Everything) -> None:
    with begun(engine) as session:
        assert ids(search.recent(session, "north", nickname="ana")) == {north.snap.id, north.draft.id}
        assert ids(search.recent(session, "north")) == {north.snap.id, north.draft.id}
        assert [it.video_id for it in search.videos_mine(session, "north", "ana").items] == [north.snap.video_id]
        assert {it.id for it in videos.page(session, "north").items} == {north.snap.video_id, north.upload.id}
        assert {it.id for it in webhooks.every(session, "north")} == {north.webhook_id}
        assert north.template_id in {it.id for it in templates.every(session, "north")}
        assert south.template_id not in {it.id for it in templates.every(session, "north")}
        assert storage_use.of(session, "north").used_bytes == len(b"bytes")
        assert [it.id for it in webhooks.wanting(session, "north", "snap.completed")] == [north.webhook_id]


def test_what_is_made_without_a_scope_is_made_of_ones_own(
    engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> None:
    """The same e-mail, URL, bytes and key, with another tenant's beside them."""
    with begun(engine) as session:
        for its in (north, south):
            assert videos.at_url(session, its.tenant, "https://example.org/same.mp4").id == its.snap.video_id
            assert videos.add_upload(session, its.tenant, an_upload()).id == its.upload.id
            assert templates.resolve(session, its.tenant, None).id == its.template_id
        assert idempotency.hold_key(session, "north", north.key, BODY, uuid4()) == north.snap.id
        make_snap(session, "north", subject=subject("boi-7"))
        session.connection().exec_driver_sql("UPDATE idempotency SET created_at = created_at - interval '2 days'")
        assert idempotency.forget_keys(session, "north") == 1
    with begun(engine) as session:
        assert tenants_seen(session, "idempotency") == {"south"}
        whose = "SELECT DISTINCT snap.tenant, operator.tenant FROM snap JOIN operator ON operator.id = operator_id"
        assert set(session.connection().exec_driver_sql(whose)) == {("north", "north"), ("south", "south")}


def test_lists_that_claim_to_be_another_are_empty_within_a_scope(
    engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> None:
    with acting(engine, "north") as session:
        assert search.recent(session, "south", nickname="ana").items == []
        assert search.recent(session, "south").items == []
        assert storage_use.of(session, "south").used_bytes == 0
        assert search.videos_mine(session, "south", "ana").items == []
        assert videos.page(session, "south").items == []
        assert webhooks.every(session, "south") == []
        assert operators.every(session, "south") == []
        assert templates.every(session, "south") == []
        assert webhooks.wanting(session, "south", "snap.completed") == []
        assert idempotency.forget_keys(session, "south") == 0


def test_what_is_made_for_another_tenant_is_refused_by_row_level_security(
    engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> None:
    with acting(engine, "north") as session:
        with refused(session):
            snaps.create(session, "south", new_snap())
        with refused(session):
            session.add(copied(south.snap))
            session.flush()
        with refused(session):
            videos.at_url(session, "south", "https://example.org/new.mp4")
        with refused(session):
            videos.add_upload(session, "south", an_upload(b"new"))
        with refused(session):
            webhooks.add(session, "south", "https://example.org/", ["snap.failed"])
        with refused(session):
            operators.add(session, "south", "Eva", "eva@example.org", OperatorRole.ADMIN)
        with refused(session):
            idempotency.hold_key(session, "south", "new", b"x" * 32, uuid4())


def test_a_snap_cannot_point_at_what_is_anothers(
    engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> None:
    """The third wall: every reference names the tenant."""
    with begun(engine) as session, refused(session, psycopg.errors.ForeignKeyViolation):  # without a scope
        session.add(copied(north.snap, video_id=south.snap.video_id))
        session.flush()


def copied(snap: Snap, **changes: Any) -> Snap:
    columns = [column for column in Snap.__table__.columns if column.computed is None]
    values = {name: getattr(snap, name) for name in (Snap.__mapper__.get_property_by_column(it).key for it in columns)}
    return Snap(**values | {"id": uuid4()} | changes)


def test_the_same_key_the_same_url_and_the_same_bytes_are_each_tenants_own(
    north: Everything, south: Everything
) -> None:
    assert north.snap.id != south.snap.id
    assert north.snap.video_id != south.snap.video_id
    assert north.upload.id != south.upload.id
    assert north.share.token != south.share.token


# --- the scope --------------------------------------------------------------------------------------------------


def whoami(session: Session) -> tuple[str, str]:
    [row] = session.connection().exec_driver_sql(
        "SELECT current_user, coalesce(current_setting('snapapp.tenant', true), '')"
    )
    return row[0], row[1]


def test_a_scope_ends_where_it_was_left(engine: sqlalchemy.Engine, north: Everything) -> None:
    with begun(engine) as session:
        outside = whoami(session)
        with db.scope(session, "north"):
            assert whoami(session) == ("snapapp_tenant", "north")
            with db.scope(session, "default"):
                assert whoami(session) == ("snapapp_tenant", "default")
            assert whoami(session) == ("snapapp_tenant", "north")
        assert whoami(session) == outside


def test_within_a_scope_every_plan_is_made_for_its_values(engine: sqlalchemy.Engine, north: Everything) -> None:
    """By the sixth execution a search for what half of all have would otherwise go the way of what one has."""
    with begun(engine) as session:
        with db.scope(session, "north"):
            assert session.connection().exec_driver_sql("SHOW plan_cache_mode").scalar() == "force_custom_plan"
        assert session.connection().exec_driver_sql("SHOW plan_cache_mode").scalar() == "auto"


def test_an_error_within_a_scope_leaves_it(engine: sqlalchemy.Engine, north: Everything) -> None:
    with begun(engine) as session:
        outside = whoami(session)
        with pytest.raises(NotFound), db.scope(session, "north"):
            snaps.read(session, "north", uuid4())
        assert whoami(session) == outside


def test_a_refusal_of_the_database_within_a_scope_is_what_its_caller_hears(
    engine: sqlalchemy.Engine, north: Everything
) -> None:
    with db.session(engine) as session:
        outside = whoami(session)
        with pytest.raises(sqlalchemy.exc.DataError), db.scope(session, "north"):
            session.connection().exec_driver_sql("SELECT 1 / 0")
        session.rollback()
        assert whoami(session) == outside


def test_a_transaction_that_is_over_takes_its_scope_with_it(engine: sqlalchemy.Engine, north: Everything) -> None:
    with db.session(engine) as session:
        outside = whoami(session)
        with db.scope(session, "north"):
            session.rollback()
            assert whoami(session) == outside
        session.commit()
        assert whoami(session) == outside


def test_a_scope_needs_a_transaction_and_a_tenant(engine: sqlalchemy.Engine) -> None:
    with begun(engine) as session, pytest.raises(ValueError, match="somebody"), db.scope(session, ""):
        pass
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with begun(alone) as session, pytest.raises(ValueError, match="itself"), db.scope(session, "north"):
        pass


def test_a_pooled_connection_forgets_whose_it_was(engine: sqlalchemy.Engine, north: Everything) -> None:
    with begun(engine) as session:
        outside = whoami(session)
    with acting(engine, "north"):
        pass
    with begun(engine) as session:  # the pool has one
        assert whoami(session) == outside
