"""The tokens for /internal, what each allows, and which requests show one."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fastapi.security import APIKeyHeader
from starlette.types import Scope

from snapapp.api.http.requests.access import is_of_this_machine
from snapapp.api.http.requests.scopes import headers_of, is_sign_in, path_of_route

# Routers of /internal depend on this, so that /openapi.json shows it. The middleware checks the token, before a body is
# read: a dependency would come after that, and never for paths without a route.
INTERNAL_TOKEN = APIKeyHeader(
    name="X-Internal-Token",
    scheme_name="InternalToken",
    description="What `SNAPAPP_INTERNAL_TOKEN` holds, or, to read only, `SNAPAPP_INTERNAL_READ_TOKEN`. Where neither "
    "is set, only this machine may ask.",
    auto_error=False,
)

_OF_TOKENS = {b"x-internal-token", b"x-assinatura-codigo", b"x-assinatura-token"}


class Role(StrEnum):
    """What a token allows on /internal."""

    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Keys:
    """The tokens for /internal. If the operator's is not set, every client on this machine is an operator."""

    operator: bytes | None
    reader: bytes | None

    @classmethod
    def of(cls, operator: str | None, reader: str | None) -> "Keys":
        return cls(*(token.encode() if token else None for token in (operator, reader)))

    def role_of(self, headers: Mapping[bytes, bytes]) -> Role | None:
        """The role of the request's token; None if it has none, or a wrong one."""
        sent_token = headers.get(b"x-internal-token", b"")
        tokens = ((self.operator, Role.OPERATOR), (self.reader, Role.READER))
        roles = [role for token, role in tokens if token is not None and secrets.compare_digest(sent_token, token)]
        return roles[0] if roles else None

    def refuse(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the request has a wrong token. Not every such request is answered with 401: health checks answer
        anybody, and tell more with the right one."""
        return self.operator is not None and b"x-internal-token" in headers and self.role_of(headers) is None


def may_know(scope: Scope, keys: Keys) -> bool:
    """Whether the client may see reasons, which name hosts, users and paths: on this machine, or with a token."""
    return keys.role_of(headers_of(scope)) is not None or is_of_this_machine(scope)


def shows_a_token(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether the request has anything that could be a guessed token."""
    has_header = b"x-internal-token" in headers or b"x-assinatura-token" in headers
    return has_header or is_sign_in(scope) or path_of_route(scope).startswith("/sign-in/")


def token_shown(scope: Scope) -> bytes | None:
    """The token in the request's path or headers, with whose it claims to be; None where it is in the body, which is
    not read here. Of a header that is there twice both count: it is not decided here which one is looked at."""
    path = path_of_route(scope)
    if is_sign_in(scope):
        return None
    if path.startswith("/sign-in/"):
        return path.encode("utf-8", "surrogatepass")
    return b"\n".join(value for name, value in scope["headers"] if name in _OF_TOKENS)
