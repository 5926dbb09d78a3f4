"""A database whose owner is an ordinary user, as on a managed server: it may not pass by row level security, perhaps
not make roles either."""

import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

from snapapp.domain import sharing, snaps, tenants
from snapapp.domain.finding import search
from snapapp.errors import MigrationError, PublicSnapNotFound
from snapapp.jobs.model import Buried, Failure
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.database import connect, sqlalchemy_url
from snapapp.postgres import database
from snapapp.postgres.migrate import migrate
from tests import ROOT
from tests.conftest import embedded_server
from tests.databases import Postgres
from tests.domain.making import EVIDENCE, Everything, acting, begun, furnish, make_snap, process
from tests.factory import bury, claimed
from tests.postgres.clusters import take_down

OWNER = "plain_owner"


@pytest.fixture
def owned_url(server: Postgres, empty_url: str) -> Iterator[str]:
    """An empty database of an ordinary user's, and no role for tenants yet."""
    name = sqlalchemy.make_url(empty_url).database
    assert name
    with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {OWNER} LOGIN")
        admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(name), sql.Identifier(OWNER)))
    with psycopg.connect(empty_url, autocommit=True) as inside:
        inside.execute(f"ALTER SCHEMA public OWNER TO {OWNER}")
    try:
        yield sqlalchemy.make_url(empty_url).set(username=OWNER).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(empty_url, autocommit=True) as inside:
            inside.execute(f"DROP OWNED BY {OWNER}")
        with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
            admin.execute(f"REASSIGN OWNED BY {OWNER} TO CURRENT_USER")
            admin.execute(f"DROP OWNED BY {OWNER}")
            admin.execute(f"DROP ROLE {OWNER}")


@pytest.fixture
def administrator(server: Postgres) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
        yield admin


@pytest.fixture
def owned(owned_url: str, administrator: psycopg.Connection[tuple[object, ...]]) -> Iterator[sqlalchemy.Engine]:
    """Migrated by its owner, as somebody who was given the role."""
    administrator.execute(f"GRANT snapapp_tenant TO {OWNER}")
    migrate(owned_url)
    engine = sqlalchemy.create_engine(sqlalchemy_url(owned_url))
    yield engine
    engine.dispose()


@pytest.mark.both_servers_at_length
def test_an_owner_who_may_not_make_or_take_the_role_is_told_what_to_ask_for(
    owned_url: str, administrator: psycopg.Connection[tuple[object, ...]]
) -> None:
    with pytest.raises(MigrationError, match=f"have an administrator type: GRANT snapapp_tenant TO {OWNER}"):
        migrate(owned_url)
    with psycopg.connect(owned_url) as inside:
        assert inside.execute("SELECT to_regclass('snap_processing_job')").fetchone() == (None,), "nothing was changed"
    administrator.execute(f"GRANT snapapp_tenant TO {OWNER}")
    migrate(owned_url)


@pytest.mark.both_servers_at_length
def test_an_owner_who_may_give_the_role_needs_nobody(
    owned_url: str, administrator: psycopg.Connection[tuple[object, ...]]
) -> None:
    administrator.execute(f"GRANT snapapp_tenant TO {OWNER} WITH ADMIN OPTION")
    migrate(owned_url)
    take_down(owned_url)
    migrate(owned_url)


def test_a_tenant_role_above_row_level_security_is_refused(
    empty_url: str, administrator: psycopg.Connection[tuple[object, ...]]
) -> None:
    administrator.execute("ALTER ROLE snapapp_tenant BYPASSRLS")
    try:
        with pytest.raises(MigrationError, match="NOBYPASSRLS"):
            migrate(empty_url)
    finally:
        administrator.execute("ALTER ROLE snapapp_tenant NOBYPASSRLS")


def test_in_a_new_cluster_the_role_is_made_by_whoever_may() -> None:
    with embedded_server() as url, psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("CREATE ROLE maker LOGIN CREATEROLE")
        for owner in ("plain", "maker"):
            admin.execute(f"CREATE DATABASE of_{owner} OWNER {owner}")

        def migrate_as(owner: str) -> None:
            address = sqlalchemy.make_url(url).set(database=f"of_{owner}", username=owner)
            migrate(address.render_as_string(hide_password=False))

        missing = "the role snapapp_tenant is missing and plain may not make it: .*CREATE ROLE snapapp_tenant NOLOGIN; "
        with pytest.raises(MigrationError, match=missing + "GRANT snapapp_tenant TO plain"):
            migrate_as("plain")
        migrate_as("maker")


@pytest.mark.at_length  # in a new cluster the role is made in every run
def test_databases_of_a_new_cluster_are_migrated_at_once() -> None:
    """FC19: they share no lock, and one role that each of them would make."""
    script = "import sys, snapapp.postgres.migrate as m; m.migrate(sys.argv[1])"
    with embedded_server() as url, psycopg.connect(url, autocommit=True) as admin:
        urls = [sqlalchemy.make_url(url).set(database=name) for name in ("first", "second", "third")]
        for each in urls:
            admin.execute(f"CREATE DATABASE {each.database}")
        argvs = [[sys.executable, "-c", script, each.render_as_string(hide_password=False)] for each in urls]
        started = [subprocess.Popen(argv, cwd=ROOT) for argv in argvs]
        assert [each.wait(timeout=60) for each in started] == [0, 0, 0]
        assert admin.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'snapapp_tenant'").fetchone() == (1,)


@pytest.mark.both_servers_at_length
def test_all_goes_on_where_the_owner_is_held_to_row_level_security(owned: sqlalchemy.Engine, owned_url: str) -> None:
    """S24: seeds, triggers and the two doors included."""
    north = furnish(owned, "north")
    with connect(owned_url, name="test") as worker:
        [job] = claimed(worker, 1, kinds=["snap.process"]).jobs
        bury(worker, job, Buried(Failure("no video stream")), 0.1)
        assert state(owned, north.draft.id) == ("FAILED", "no video stream")
        lifecycle.retry_by_person(worker, job.id)
        assert state(owned, north.draft.id) == ("PENDING", "no video stream")
    with begun(owned) as session:
        assert tenants.by_code(session, "north").code == "north"
        assert sharing.read_public(session, north.share.token).id == north.snap.id
        with pytest.raises(PublicSnapNotFound):
            sharing.read_public(session, "0" * 32)
        process(session, "north", north.snap.id)
    with acting(owned, "north") as session:
        assert snaps.complete(session, "north", make_snap(session, "north").id, EVIDENCE)


def state(engine: sqlalchemy.Engine, snap_id: UUID) -> tuple[str, str | None]:
    with acting(engine, "north") as session:
        snap = snaps.read(session, "north", snap_id)
    return snap.status.value, snap.error


@pytest.mark.both_servers_at_length
def test_an_owner_who_forgets_the_scope_sees_nothing(owned: sqlalchemy.Engine) -> None:
    """S24: FORCE. Only the doors are open, where it is found out who somebody is."""
    north: Everything = furnish(owned, "north")
    with begun(owned) as session:
        assert snaps.read_many(session, "north", [north.snap.id]) == []
        assert search.recent(session, "north").items == []
        for table in ("operator", "template", "video", "snap", "subject_attribute", "correction", "webhook"):
            assert session.connection().exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0
        assert session.connection().exec_driver_sql("SELECT count(*) FROM snap_job").scalar() == 0
        with database.scope(session, "north"):
            assert len(snaps.read_many(session, "north", [north.snap.id])) == 1
