"""Tenants: who they are, and the tokens they prove it with. Asked outside of any scope: it is here that it is found out
whose scope it will be."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from snapapp import checks
from snapapp.errors import Conflict, TenantNotFound, TokenRequired, TokenWrong

DEFAULT = "default"
DEVELOPMENT_TOKEN = "dev-default-token"  # noqa: S105 - seeded; everybody knows it

_CODE_LONGEST, _NAME_LONGEST = 100, 200


@dataclass(frozen=True, slots=True)
class Tenant:
    code: str
    name: str
    status: str  # ACTIVE or INACTIVE
    has_token: bool
    created_at: datetime
    token_changed_at: datetime


_BY_CODE = """
SELECT token_hash, code, name, status, token_hash IS NOT NULL, created_at, token_changed_at FROM tenant
 WHERE code = %(code)s AND status = 'ACTIVE'
"""

_WITH_HASH = """
SELECT token_hash, code, name, status, token_hash IS NOT NULL, created_at, token_changed_at FROM tenant
 WHERE token_hash = %(token_hash)s AND status = 'ACTIVE'
"""

_EVERY = """
SELECT code, name, status, token_hash IS NOT NULL, created_at, token_changed_at FROM tenant ORDER BY code
"""

_ADD = """
INSERT INTO tenant (code, name, token_hash) VALUES (%(code)s, %(name)s, %(token_hash)s)
ON CONFLICT (code) DO NOTHING
RETURNING code, name, status, token_hash IS NOT NULL, created_at, token_changed_at
"""

_ROTATE = """
UPDATE tenant SET token_hash = %(token_hash)s, token_changed_at = now() WHERE code = %(code)s RETURNING code
"""


def identify(db: Connection, *, code: str | None, token: str | None, tokens_required: bool) -> Tenant:
    """Who asks, by what they sent. Where tokens are required, a token alone says it all, and a code alone nothing."""
    if not tokens_required:
        return by_code(db, code or DEFAULT)
    if not token:
        raise TokenRequired
    if not code:
        return by_token(db, token)
    tenant, token_hash = _find(db, code)
    if token_hash is None or not hmac.compare_digest(token_hash, _hashed(token)):
        raise TokenWrong
    return tenant


def by_code(db: Connection, code: str) -> Tenant:
    return _find(db, code)[0]


def by_token(db: Connection, token: str) -> Tenant:
    """Looked up by its hash: how long an index takes to find that tells nothing of the token."""
    for token_hash, *rest in db.exec_driver_sql(_WITH_HASH, {"token_hash": _hashed(token)}).fetchall():
        if hmac.compare_digest(token_hash, _hashed(token)):
            return Tenant(*rest)
    raise TokenWrong


def _find(db: Connection, code: str) -> tuple[Tenant, bytes | None]:
    if checks.text(code, _CODE_LONGEST):
        raise TenantNotFound(code)
    for token_hash, *rest in db.exec_driver_sql(_BY_CODE, {"code": code}).fetchall():
        return Tenant(*rest), token_hash
    raise TenantNotFound(code)


def every(db: Connection) -> list[Tenant]:
    return [Tenant(*row) for row in db.exec_driver_sql(_EVERY).fetchall()]


def add(db: Connection, code: str, name: str) -> tuple[Tenant, str]:
    """A new tenant, with its templates, and its token, which is kept nowhere."""
    checks.insist({"code": _flaw_of_code(code), "name": checks.text(name, _NAME_LONGEST)})
    token = _new_token()
    rows = db.exec_driver_sql(_ADD, {"code": code, "name": name, "token_hash": _hashed(token)}).fetchall()
    if not rows:
        raise Conflict(f"There is an assinatura {code} already")
    return Tenant(*rows[0]), token


def rotate_token(db: Connection, code: str) -> str:
    """A new token; the old one is dead at once."""
    token = _new_token()
    if checks.text(code, _CODE_LONGEST) or not _rotated(db, code, token):
        raise TenantNotFound(code)
    return token


def _rotated(db: Connection, code: str, token: str) -> bool:
    return bool(db.exec_driver_sql(_ROTATE, {"code": code, "token_hash": _hashed(token)}).fetchall())


def with_development_token(db: Connection) -> str | None:
    """The code of the tenant whose token everybody knows, if there is one."""
    try:
        return by_token(db, DEVELOPMENT_TOKEN).code
    except TokenWrong:
        return None


def _flaw_of_code(code: str) -> str | None:
    flaw = checks.text(code, _CODE_LONGEST)
    if flaw:
        return flaw
    if not code.isprintable() or code != code.strip() or code in (".", "..") or set(code) & {"/", "\\"}:
        return "must be a name without slashes, control characters or blanks at its ends"
    return None


def _new_token() -> str:
    return secrets.token_urlsafe(32)


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
