"""Tenants, and the tokens by which they prove who they are. These functions run outside of any tenant's scope, because
their answer decides which scope a request gets."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain.rules import validation
from snapapp.domain.tables import Tenant
from snapapp.errors import Conflict, TenantNotFound, TokenRequired, TokenWrong

DEFAULT = "default"
DEVELOPMENT_TOKEN = "dev-default-token"  # noqa: S105 - seeded for development and documented, so no secret

_CODE_LONGEST, _NAME_LONGEST = 100, 200

_ACTIVE = select(Tenant).where(Tenant.status == "ACTIVE")
_BY_CODE = _ACTIVE.where(Tenant.code == bindparam("code"))
_BY_HASH = _ACTIVE.where(Tenant.token_hash == bindparam("token_hash"))


def identify(db: Session, *, code: str | None, token: str | None, tokens_required: bool) -> Tenant:
    """The tenant of a request, by the code and the token that it sent. Where tokens are required, a token is enough by
    itself and a code is not."""
    if not tokens_required:
        return by_code(db, code or DEFAULT)
    if not token:
        raise TokenRequired
    if not code:
        return by_token(db, token)
    tenant = by_code(db, code)
    if not _has(tenant, token):
        raise TokenWrong
    return tenant


def by_code(db: Session, code: str) -> Tenant:
    if not validation.text(code, _CODE_LONGEST) and (tenant := db.scalar(_BY_CODE, {"code": code})):
        return tenant
    raise TenantNotFound(code)


def by_token(db: Session, token: str) -> Tenant:
    """The tenant with this token. The row is looked up by the token's hash, so the time of the lookup tells nothing
    about the token."""
    tenant = db.scalar(_BY_HASH, {"token_hash": hash_of(token)})
    if tenant is None or not _has(tenant, token):
        raise TokenWrong
    return tenant


def _has(tenant: Tenant, token: str) -> bool:
    return tenant.token_hash is not None and hmac.compare_digest(tenant.token_hash, hash_of(token))


def every(db: Session) -> Sequence[Tenant]:
    return db.scalars(select(Tenant).order_by(Tenant.code)).all()


def add(db: Session, code: str, name: str) -> tuple[Tenant, str]:
    """Adds a tenant with its templates. Returns it with its token, of which only the hash is stored."""
    validation.insist({"code": _flaw_of_code(code), "name": validation.text(name, _NAME_LONGEST)})
    token = new_token()
    statement = insert(Tenant).values(code=code, name=name, token_hash=hash_of(token))
    added = db.scalar(statement.on_conflict_do_nothing(index_elements=[Tenant.code]).returning(Tenant))
    if added is None:
        raise Conflict(f"There is an assinatura {code} already")
    return added, token


def rotate_token(db: Session, code: str) -> str:
    """Gives the tenant a new token; the old token is refused from then on."""
    token = new_token()
    if validation.text(code, _CODE_LONGEST) or not _replace_token(db, code, token):
        raise TenantNotFound(code)
    return token


def _replace_token(db: Session, code: str, token: str) -> bool:
    change = update(Tenant).where(Tenant.code == code)
    change = change.values(token_hash=hash_of(token), token_changed_at=func.now())
    return db.scalar(change.returning(Tenant.code)) is not None


def with_development_token(db: Session) -> str | None:
    """The code of the tenant that has the documented development token, or None."""
    try:
        return by_token(db, DEVELOPMENT_TOKEN).code
    except TokenWrong:
        return None


def _flaw_of_code(code: str) -> str | None:
    flaw = validation.text(code, _CODE_LONGEST)
    if flaw:
        return flaw
    if not code.isprintable() or code != code.strip() or code in (".", "..") or set(code) & {"/", "\\"}:
        return "must be a name without slashes, control characters or blanks at its ends"
    return None


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
