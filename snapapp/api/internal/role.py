"""/internal/role: what the request's token allows."""

from fastapi import Request
from pydantic import Field

from snapapp.api.http.requests.scopes import headers_of
from snapapp.api.http.requests.tokens import Keys, Role
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown

router = InternalRouter(prefix="/internal/role", tags=["observability"])


class MayDo(Shown):
    role: Role = Field(
        description="operator: may do everything; reader: may look and change nothing.", examples=["operator"]
    )


@router.get("")
async def show_role(request: Request) -> MayDo:
    """What the request's token allows. If no token is set, clients on this machine may do everything."""
    keys: Keys = request.app.state.keys
    return MayDo(role=keys.role_of(headers_of(request.scope)) or Role.OPERATOR)
