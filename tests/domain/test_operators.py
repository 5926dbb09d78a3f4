"""People who sign in: their links, and what each role may change."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import marking, operators, snaps, tenants, videos
from snapapp.domain.rules import rights
from snapapp.domain.tables import Operator, OperatorRole
from snapapp.domain.transactions import Begin, TenantTransaction
from snapapp.errors import Conflict, Invalid, LinkWrong, NotAllowed, OperatorNotFound
from snapapp.processing.queue import QUEUE
from tests.domain.making import BODY, OWN, acting, an_upload, begun, new_snap

As = Callable[[str | None], Begin]


@pytest.fixture
def people(engine: sqlalchemy.Engine) -> dict[str, Operator]:
    with acting(engine, OWN) as session:
        roles = {
            "ana": OperatorRole.OPERATOR,
            "bia": OperatorRole.OPERATOR,
            "rui": OperatorRole.REVIEWER,
            "eva": OperatorRole.ADMIN,
        }
        return {
            name: operators.add(session, OWN, name.title(), f"{name}@example.org", role)[0]
            for name, role in roles.items()
        }


@pytest.fixture
def signed_in(engine: sqlalchemy.Engine, people: dict[str, Operator]) -> As:
    """Requests of the person with this name; of the tenant's own token for None."""

    def of(name: str | None) -> Begin:
        @contextmanager
        def begin() -> Iterator[TenantTransaction]:
            with begun(engine) as db:
                yield TenantTransaction(db, tenants.by_code(db, OWN), people[name] if name else None)

        return begin

    return of


def marked_by(begin: Begin, name: str) -> UUID:
    new = new_snap(nickname=name.title(), email=f"{name}@example.org")
    return marking.mark(begin, QUEUE, new, None, BODY)[0].id


# --- links --------------------------------------------------------------------------------------------------------


def test_a_link_signs_in_until_another_is_made_or_its_owner_is_revoked(own: Session) -> None:
    """S33: and what began with it ends."""
    ana, first = operators.add(own, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
    assert operators.by_link(own, OWN, first).id == ana.id
    assert operators.by_link(own, OWN, first).id == ana.id, "a link opened on a second device works there too"
    began = ana.link_changed_at
    assert began
    _, second = operators.renew_link(own, OWN, ana.id)
    with pytest.raises(LinkWrong):
        operators.by_link(own, OWN, first)
    assert operators.signed_in(own, OWN, ana.id, began) is None
    own.refresh(ana)
    assert ana.link_changed_at
    assert operators.by_link(own, OWN, second).id == ana.id
    assert operators.signed_in(own, OWN, ana.id, ana.link_changed_at)
    assert operators.signed_in(own, OWN, ana.id, ana.link_changed_at + timedelta(microseconds=1)) is None
    since = ana.link_changed_at
    operators.revoke(own, OWN, ana.id)
    assert operators.signed_in(own, OWN, ana.id, since) is None
    assert operators.every(own, OWN) == []
    with pytest.raises(LinkWrong):
        operators.by_link(own, OWN, second)
    with pytest.raises(OperatorNotFound):
        operators.renew_link(own, OWN, ana.id)


def test_a_role_is_given_to_whoever_signs_in_and_to_nobody_else(engine: sqlalchemy.Engine) -> None:
    """S33: neither to somebody who was revoked nor to one who is only known by marks, who would then have no link."""
    with acting(engine, OWN) as session:
        ana, secret = operators.add(session, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
        assert operators.change_role(session, OWN, ana.id, OperatorRole.ADMIN).role is OperatorRole.ADMIN
        assert operators.by_link(session, OWN, secret).role is OperatorRole.ADMIN
        operators.revoke(session, OWN, ana.id)
        bob, _ = snaps.create(session, OWN, new_snap(nickname="Bob", email="bob@example.org"))
        for nobody in (ana.id, bob.operator_id):
            with pytest.raises(OperatorNotFound):
                operators.change_role(session, OWN, nobody, OperatorRole.ADMIN)


def test_who_was_added_with_accents_of_their_own_may_mark_in_their_name(own: Session) -> None:
    """As a name is pasted on a Mac. Requests have each letter and its accent as one character."""
    joao, _ = operators.add(own, OWN, "Joa\u0303o", "joa\u0303o@example.org", OperatorRole.OPERATOR)
    rights.require_name(joao, "Jo\u00e3o", "jo\u00e3o@example.org")


def test_of_a_link_only_a_hash_is_stored(own: Session) -> None:
    _, secret = operators.add(own, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
    [row] = own.connection().exec_driver_sql("SELECT operator::text FROM operator")
    assert secret not in str(row)
    assert len(secret) >= 43


@pytest.mark.parametrize("secret", ["", "x", "\0", "\udcff", "a" * 100_000])
def test_what_is_no_link_is_refused_whatever_it_is(own: Session, secret: str) -> None:
    operators.add(own, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
    with pytest.raises(LinkWrong):
        operators.by_link(own, OWN, secret)


def test_whoever_is_known_by_marks_keeps_them_when_they_get_a_link(engine: sqlalchemy.Engine) -> None:
    """Once revoked, too: their row stays, and with it what they marked."""
    with acting(engine, OWN) as session:
        snap, _ = snaps.create(session, OWN, new_snap(nickname="aninha", email="ANA@example.org"))
        assert operators.every(session, OWN) == [], "a mark lets nobody sign in"
        with pytest.raises(OperatorNotFound):
            operators.renew_link(session, OWN, snap.operator_id)
        for _ in range(2):
            ana, _ = operators.add(session, OWN, " Ana ", "Ana@Example.org ", OperatorRole.OPERATOR)
            assert (ana.id, ana.nickname, ana.email) == (snap.operator_id, "Ana", "ana@example.org")
            operators.revoke(session, OWN, ana.id)


def test_a_mark_in_an_operators_name_does_not_rename_the_operator(own: Session) -> None:
    ana, _ = operators.add(own, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
    snap, _ = snaps.create(own, OWN, new_snap(nickname="Bob", email="ana@example.org"))
    own.refresh(ana)
    assert (snap.operator_id, ana.nickname) == (ana.id, "Ana")


def test_nobody_is_added_twice(own: Session) -> None:
    operators.add(own, OWN, "Ana", "ana@example.org", OperatorRole.OPERATOR)
    with pytest.raises(Conflict, match="can sign in already"):
        operators.add(own, OWN, "Other", "ANA@example.org", OperatorRole.ADMIN)
    assert [each.role for each in operators.every(own, OWN)] == [OperatorRole.OPERATOR]


@pytest.mark.parametrize(
    "email", ["", "ana", "@x", "ana@", "a@b@c", "a b@c", "a\u00a0b@c", "a@b\0", "a@\u202ec", "a" * 320 + "@b"]
)
def test_an_email_that_is_none_is_refused(own: Session, email: str) -> None:
    with pytest.raises(Invalid, match="email: "):
        operators.add(own, OWN, "Ana", email, OperatorRole.OPERATOR)


@pytest.mark.parametrize("nickname", ["", "  ", "a\0", "a" * 121])
def test_a_name_that_is_none_is_refused(own: Session, nickname: str) -> None:
    with pytest.raises(Invalid, match="nickname: "):
        operators.add(own, OWN, nickname, "ana@example.org", OperatorRole.OPERATOR)


# --- rights -------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Begin, UUID, str], Any]] = {
    "correct": lambda begin, snap_id, name: marking.correct(begin, QUEUE, snap_id, "boi-7", None, by=name),
    "share": lambda begin, snap_id, _: marking.share(begin, QUEUE, snap_id, None, "r-1"),
    "revoke": lambda begin, snap_id, _: marking.revoke(begin, snap_id),
    "cancel": lambda begin, snap_id, _: marking.cancel(begin, QUEUE, snap_id, None),
    "retry": lambda begin, snap_id, _: marking.retry(begin, QUEUE, snap_id),
    "remove": lambda begin, snap_id, _: marking.remove(begin, QUEUE, snap_id, "r-1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_operator_changes_only_what_they_marked(signed_in: As, engine: sqlalchemy.Engine, change: str) -> None:
    """S33: and sees what others marked."""
    anas = marked_by(signed_in("ana"), "ana")
    if change == "retry":
        marking.cancel(signed_in(None), QUEUE, anas, None)
    before = marking.read(signed_in("bia"), anas)
    with pytest.raises(NotAllowed, match="Somebody else added this"):
        CHANGES[change](signed_in("bia"), anas, "Bia")
    after = marking.read(signed_in("bia"), anas)
    assert (after.version, after.cancelled_by, after.is_shared) == (before.version, before.cancelled_by, False)
    assert after.job
    assert before.job
    assert after.job.status == before.job.status
    CHANGES[change](signed_in("ana"), anas, "Ana")


@pytest.mark.parametrize("who", ["rui", "eva", None])
@pytest.mark.parametrize("change", CHANGES)
def test_a_reviewer_an_admin_and_the_tenant_change_what_anybody_marked(
    signed_in: As, who: str | None, change: str
) -> None:
    anas = marked_by(signed_in("ana"), "ana")
    if change == "retry":
        marking.cancel(signed_in(None), QUEUE, anas, None)
    CHANGES[change](signed_in(who), anas, (who or "anybody").title())


@pytest.mark.parametrize("who", ["ana", "rui", "eva"])
def test_whoever_is_signed_in_does_nothing_in_another_name(signed_in: As, who: str) -> None:
    """S33: who marked, who corrected and who cancelled is never claimed."""
    own = marked_by(signed_in(who), who)
    for nickname, email in [
        ("Bia", f"{who}@example.org"),
        (who.title(), "bia@example.org"),
        ("Bia", "bia@example.org"),
    ]:
        with pytest.raises(NotAllowed, match=f"You are signed in as {who.title()} <{who}@example.org>"):
            marking.mark(signed_in(who), QUEUE, new_snap(nickname=nickname, email=email), "key", BODY)
    with pytest.raises(NotAllowed, match="signed in"):
        marking.correct(signed_in(who), QUEUE, own, "boi-7", None, by="Bia")
    with pytest.raises(NotAllowed, match="signed in"):
        marking.cancel(signed_in(who), QUEUE, own, "Bia")
    marking.cancel(signed_in(who), QUEUE, own, None)
    assert marking.read(signed_in(who), own).cancelled_by == who.title()


def test_a_correction_remembers_who_was_signed_in(
    signed_in: As, people: dict[str, Operator], engine: sqlalchemy.Engine
) -> None:
    """S33."""
    anas = marked_by(signed_in("ana"), "ana")
    marking.correct(signed_in("rui"), QUEUE, anas, "boi-7", None, by="Rui")
    marking.correct(signed_in(None), QUEUE, anas, "boi-8", None, by="Rui")
    with acting(engine, OWN) as session:
        corrections = [(each.by, each.operator_id) for each in snaps.corrections(session, OWN, anas)]
    assert corrections == [("Rui", people["rui"].id), ("Rui", None)]


def test_an_operator_deletes_only_videos_that_they_added(signed_in: As) -> None:
    upload = videos.keep(signed_in("ana"), QUEUE, an_upload(), "r-1")
    named = videos.add_remote(signed_in("ana"), QUEUE, "https://example.org/a.mp4", "r-1")
    tenants_own = videos.add_remote(signed_in(None), QUEUE, "https://example.org/b.mp4", "r-1")
    again = videos.add_remote(signed_in("bia"), QUEUE, "https://example.org/a.mp4", "r-1")
    assert again.id == named.id
    for video in (upload, named, tenants_own):
        with pytest.raises(NotAllowed):
            videos.remove(signed_in("bia"), QUEUE, video.id, "r-1")
    with pytest.raises(NotAllowed):
        videos.remove(signed_in("ana"), QUEUE, tenants_own.id, "r-1")
    for name, video in [("ana", upload), ("ana", named), ("rui", tenants_own)]:
        videos.remove(signed_in(name), QUEUE, video.id, "r-1")


@pytest.mark.parametrize(
    ("role", "all_of_it", "settings"),
    [
        (OperatorRole.OPERATOR, False, False),
        (OperatorRole.REVIEWER, True, False),
        (OperatorRole.ADMIN, True, True),
        (None, False, False),
    ],
)
def test_what_a_role_allows(role: OperatorRole | None, all_of_it: bool, settings: bool) -> None:
    """And nothing to somebody without a role, who can not have signed in."""
    who = Operator(id=7, nickname="Ana", email="ana@example.org", role=role)
    assert rights.may_change_all(who) is all_of_it
    if settings:
        rights.require_settings(who)
    else:
        with pytest.raises(NotAllowed):
            rights.require_settings(who)
    if not all_of_it:
        with pytest.raises(NotAllowed):
            rights.require_own(who, None)
