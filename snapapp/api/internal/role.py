"""/internal/role: what whoever asks may do."""

from fastapi import APIRouter, Request
from pydantic import Field

from snapapp.api.http.middleware import Keys, Role
from snapapp.api.http.schema import Shown

router = APIRouter(prefix="/internal/role", tags=["observability"])


class MayDo(Shown):
    role: Role = Field(description="operator: all there is; reader: look, and change nothing.", examples=["operator"])


@router.get("")
async def show_role(request: Request) -> MayDo:
    """What the token that was shown may do; where none is set, this machine may do all."""
    keys: Keys = request.app.state.keys
    return MayDo(role=keys.role_of(dict(request.scope["headers"])) or Role.OPERATOR)
