"""Public links: one at a time, dead when revoked or past their time, and never again."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import sharing, snaps
from snapapp.errors import Invalid, PublicSnapNotFound, SnapIsDraft, SnapNotFound
from tests.domain.making import EVIDENCE, OWN, Everything, begun, make_snap
from tests.factory import ago, hence


def is_public(session: Session, token: str) -> bool:
    session.connection().exec_driver_sql("RESET ROLE")  # as whoever holds a link comes: in no scope
    try:
        return sharing.read_public(session, token).id is not None
    except PublicSnapNotFound:
        return False
    finally:
        session.connection().exec_driver_sql("SET LOCAL ROLE snapapp_tenant")


def test_sharing_twice_gives_the_same_link(own: Session) -> None:
    """S23."""
    snap = make_snap(own, OWN)
    first = sharing.share(own, OWN, snap.id)
    assert re.fullmatch(r"[0-9a-f]{32}", first.token)
    assert (first.snap_id, first.tenant, first.expires_at, first.revoked_at) == (snap.id, OWN, None, None)
    assert sharing.share(own, OWN, snap.id) == first
    assert sharing.in_force(own, OWN, snap.id) == first


def test_a_link_shows_its_snap_as_it_is_now(own: Session) -> None:
    """S23: shared while pending, seen when finished."""
    snap = make_snap(own, OWN)
    token = sharing.share(own, OWN, snap.id).token
    snaps.complete(own, OWN, snap.id, EVIDENCE)
    own.connection().exec_driver_sql("RESET ROLE")
    assert sharing.read_public(own, token).frame_count == 1


def test_a_revoked_link_is_dead_for_ever_and_the_next_one_is_another(own: Session) -> None:
    snap = make_snap(own, OWN)
    first = sharing.share(own, OWN, snap.id).token
    assert sharing.revoke(own, OWN, snap.id)
    assert not is_public(own, first)
    assert not sharing.revoke(own, OWN, snap.id), "there was none in force"
    second = sharing.share(own, OWN, snap.id).token
    assert second != first
    assert is_public(own, second)
    assert not is_public(own, first)


def test_a_link_ends_at_its_time_and_the_next_one_is_another(own: Session) -> None:
    snap = make_snap(own, OWN)
    first = sharing.share(own, OWN, snap.id, expires_at=hence(hours=1)).token
    assert is_public(own, first)
    own.connection().exec_driver_sql("UPDATE share SET created_at = now() - interval '2 hours', expires_at = now()")
    assert not is_public(own, first)
    assert sharing.in_force(own, OWN, snap.id) is None
    assert not sharing.revoke(own, OWN, snap.id)
    second = sharing.share(own, OWN, snap.id)
    assert second.token != first
    assert not is_public(own, first)


def test_a_time_given_later_is_when_the_same_link_ends(own: Session) -> None:
    snap = make_snap(own, OWN)
    first = sharing.share(own, OWN, snap.id)
    ends = hence(days=1)
    again = sharing.share(own, OWN, snap.id, expires_at=ends)
    assert (again.token, again.expires_at) == (first.token, ends)
    assert sharing.share(own, OWN, snap.id).expires_at == ends, "sharing without a time changes none"


def test_a_time_that_is_over_is_refused(own: Session) -> None:
    snap = make_snap(own, OWN)
    with pytest.raises(Invalid, match="expiresAt: "):
        sharing.share(own, OWN, snap.id, expires_at=ago(seconds=1))
    assert sharing.in_force(own, OWN, snap.id) is None


def test_a_draft_is_not_shared(own: Session) -> None:
    with pytest.raises(SnapIsDraft):
        sharing.share(own, OWN, make_snap(own, OWN, is_draft=True).id)


def test_a_snap_that_is_not_there_is_not_shared_and_not_revoked(own: Session) -> None:
    for touch in (sharing.share, sharing.revoke):
        with pytest.raises(SnapNotFound):
            touch(own, OWN, uuid4())


def test_the_link_of_a_hidden_snap_can_be_revoked(own: Session) -> None:
    snap = make_snap(own, OWN)
    token = sharing.share(own, OWN, snap.id).token
    snaps.remove(own, OWN, snap.id)
    assert sharing.revoke(own, OWN, snap.id)
    assert not is_public(own, token)


def test_a_link_of_a_tenant_that_is_not_active_is_dead(own: Session) -> None:
    token = sharing.share(own, OWN, make_snap(own, OWN).id).token
    assert is_public(own, token)
    own.connection().exec_driver_sql("RESET ROLE")
    own.connection().exec_driver_sql("UPDATE tenant SET status = 'INACTIVE' WHERE code = 'default'")
    assert not is_public(own, token)


@pytest.mark.parametrize("token", ["", "0" * 32, "\0", "\ud800", "x" * 100_000, "' OR true --", "%"])
def test_a_token_that_is_none_is_not_found_and_named(engine: sqlalchemy.Engine, token: str) -> None:
    with begun(engine) as session:
        with pytest.raises(PublicSnapNotFound) as raised:
            sharing.find(session, token)
        assert str(raised.value) == f"Public snap not found: {token}"
        assert session.connection().exec_driver_sql("SELECT 1").scalar() == 1


def test_a_link_opens_one_snap_and_closes_the_scope_behind_it(
    engine: sqlalchemy.Engine, north: Everything, south: Everything
) -> None:
    with begun(engine) as session:
        before = session.connection().exec_driver_sql("SELECT current_user").scalar()
        assert sharing.read_public(session, north.share.token).id == north.snap.id
        assert session.connection().exec_driver_sql("SELECT current_user").scalar() == before


def test_times_are_the_databases(own: Session) -> None:
    """A clock of ours that is wrong does not make a link immortal."""
    snap = make_snap(own, OWN)
    made = sharing.share(own, OWN, snap.id, expires_at=hence(minutes=1))
    [(now,)] = own.connection().exec_driver_sql("SELECT now()").fetchall()
    assert made.created_at == now
    assert made.expires_at
    assert made.expires_at - now < timedelta(minutes=2)
