"""/v2/snaps/{id}/share and …/revoke: a link for whoever should see the evidence and nothing else."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import Field

from snapapp import sharing, snaps
from snapapp.api.body import StrictRoute
from snapapp.api.deps import House, RequestId
from snapapp.api.errors import may_be
from snapapp.api.places import url_of_link
from snapapp.api.schema import Asked, Moment, Shown
from snapapp.api.snaps import NO_SNAP, SnapId
from snapapp.api.tenancy import Own, Visiting
from snapapp.processing import hooks
from snapapp.sharing import Share

router = APIRouter(prefix="/v2/snaps", tags=["snaps"], route_class=StrictRoute)


class Sharing(Asked):
    expires_at: Moment | None = Field(None, description="When the link ends; else it goes on until it is revoked.")


class Shared(Shown):
    """Whether a snap has a link, and which."""

    snap_id: UUID
    is_public: bool
    public_share_token: str | None = Field(examples=["0f8fad5bd9cb469fa16570867728950e"])
    public_url: str | None = Field(examples=["https://snaps.example/public/snaps/0f8fad5bd9cb469fa16570867728950e"])
    expires_at: datetime | None = None


@router.post("/{snap_id}/share", responses=NO_SNAP | may_be(_409="It is a draft."))
def share_snap(
    visit: Visiting,
    house: House,
    snap_id: SnapId,
    request: Request,
    request_id: RequestId,
    wanted: Sharing | None = None,
) -> Shared:
    """Makes a link, or gives the one there is. A snap that is not finished may be shared too."""
    db, code = visit.connection, visit.code
    with visit.as_tenant():
        had = sharing.in_force(db, code, snap_id)
        share = sharing.share(db, code, snap_id, expires_at=wanted.expires_at if wanted else None)
    if had is None:
        hooks.announce(db, code, snap_id, "snap.shared", request_id)
    return _shown(snap_id, share, url_of_link(request, house, share.token))


@router.get("/{snap_id}/share", responses=NO_SNAP)
def show_share(own: Own, house: House, snap_id: SnapId, request: Request) -> Shared:
    """The link there is, if there is one."""
    snaps.read(own.connection, own.code, snap_id)
    share = sharing.in_force(own.connection, own.code, snap_id)
    return _shown(snap_id, share, url_of_link(request, house, share.token) if share else None)


@router.post("/{snap_id}/revoke", responses=NO_SNAP)
def revoke_share(own: Own, snap_id: SnapId) -> Shared:
    """The link is dead from now on, and so is every file below it. The next one will be another."""
    snaps.read(own.connection, own.code, snap_id)
    sharing.revoke(own.connection, own.code, snap_id)
    return _shown(snap_id, None, None)


def _shown(snap_id: UUID, share: Share | None, url: str | None) -> Shared:
    return Shared(
        snap_id=snap_id,
        is_public=share is not None,
        public_share_token=share.token if share else None,
        public_url=url,
        expires_at=share.expires_at if share else None,
    )
