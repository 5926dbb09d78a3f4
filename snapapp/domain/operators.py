"""The people of a tenant who sign in: each has a role, and a personal link that works until it is replaced or the
person is revoked. Only the hash of a link's secret is stored."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain import tenants, turns
from snapapp.domain.rules import validation
from snapapp.domain.rules.snaps import EMAIL_LONGEST, NICKNAME_LONGEST
from snapapp.domain.rules.texts import composed
from snapapp.domain.tables import Operator, OperatorRole, Tenant
from snapapp.domain.tenants import hash_of, new_token
from snapapp.errors import Conflict, LinkWrong, OperatorNotFound, TenantNotFound
from snapapp.postgres import database

MOST = 500


def every(db: Session, tenant: str) -> Sequence[Operator]:
    return db.scalars(select(Operator).where(_signs_in(tenant)).order_by(Operator.id)).all()


def add(db: Session, tenant: str, nickname: str, email: str, role: OperatorRole) -> tuple[Operator, str]:
    """Lets a person sign in; returns them with the secret of their link. If they are known by marks that were made with
    the tenant's token, those marks are theirs."""
    nickname, email = composed(nickname.strip()), composed(email.strip()).lower()
    validation.insist({"nickname": validation.text(nickname, NICKNAME_LONGEST), "email": _flaw_of_email(email)})
    turns.take(db, tenant, "operators")
    if len(every(db, tenant)) >= MOST:
        raise Conflict(f"There are {MOST} operators already, revoke one first")
    secret = new_token()
    who = insert(Operator).values(tenant=tenant, email=email, nickname=nickname, role=role, **_link(secret))
    who = who.on_conflict_do_update(
        index_elements=[Operator.tenant, Operator.email_lower],
        set_={name: who.excluded[name] for name in ("email", "nickname", "role", "link_hash", "link_changed_at")}
        | {"updated_at": func.now()},
        where=Operator.role.is_(None),
    )
    added = db.scalar(who.returning(Operator), execution_options={"populate_existing": True})
    if added is None:
        raise Conflict(f"This person can sign in already: {email}")
    return added, secret


def _flaw_of_email(email: str) -> str | None:
    name, at, host = email.partition("@")
    is_one = name and at and host and "@" not in host and email.isprintable() and " " not in email
    return validation.text(email, EMAIL_LONGEST) or (None if is_one else "must be an e-mail address")


def change_role(db: Session, tenant: str, operator_id: int, role: OperatorRole) -> Operator:
    """Their link and sessions go on: each request reads the role anew."""
    return _change(db, tenant, operator_id, role=role)


def renew_link(db: Session, tenant: str, operator_id: int) -> tuple[Operator, str]:
    """The operator and the secret of their new link. The old link is dead, and so is every session that began with
    it."""
    secret = new_token()
    return _change(db, tenant, operator_id, **_link(secret)), secret


def revoke(db: Session, tenant: str, operator_id: int) -> None:
    """The person cannot sign in any more, and their sessions end. Their marks stay as they are."""
    _change(db, tenant, operator_id, role=None, link_hash=None, link_changed_at=None)


def _change(db: Session, tenant: str, operator_id: int, **values: object) -> Operator:
    change = update(Operator).where(_signs_in(tenant), Operator.id == operator_id)
    change = change.values(updated_at=func.now(), **values)
    changed: Operator | None = db.scalar(change.returning(Operator), execution_options={"populate_existing": True})
    if changed is None:
        raise OperatorNotFound(operator_id)
    return changed


def _link(secret: str) -> dict[str, object]:
    # the clock and not now(): two links of one transaction are told apart, too
    return {"link_hash": hash_of(secret), "link_changed_at": func.clock_timestamp()}


# --- signing in -------------------------------------------------------------------------------------------------


def path_of_link(tenant: str, secret: str) -> str:
    return f"/sign-in/{quote(tenant, safe='')}/{secret}"


def by_link(db: Session, tenant: str, secret: str) -> Operator:
    """Whose link it is. The row is looked up by the secret's hash, so the time of the lookup tells nothing about it."""
    found = db.scalar(select(Operator).where(_signs_in(tenant), Operator.link_hash == hash_of(secret)))
    if found is None:
        raise LinkWrong
    return found


def whose(db: Session, code: str, secret: str) -> tuple[Tenant, Operator]:
    """The tenant and the operator of a link, found outside of any tenant's scope."""
    try:
        tenant = tenants.by_code(db, code)
    except TenantNotFound:
        raise LinkWrong from None
    with database.scope(db, tenant.code):
        return tenant, by_link(db, tenant.code, secret)


def signed_in(db: Session, tenant: str, operator_id: int, link_changed_at: datetime) -> Operator | None:
    """The operator of a session that began with the link made at that time; None if the session has ended."""
    by_id = select(Operator).where(_signs_in(tenant), Operator.id == operator_id)
    return db.scalar(by_id.where(Operator.link_changed_at == link_changed_at))


def _signs_in(tenant: str) -> ColumnElement[bool]:
    return (Operator.tenant == tenant) & Operator.role.is_not(None)
