"""/v2/snaps/{id}/share and …/revoke: a public link that shows the evidence of a snap and nothing else."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Asked, Moment, Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import Begins, Own
from snapapp.api.product.snaps import NO_SNAP, SnapId
from snapapp.api.product.urls import url_of_link
from snapapp.domain import marking, sharing, snaps
from snapapp.domain.tables import Share
from snapapp.processing.queue import QUEUE

router = Router(prefix="/v2/snaps", tags=["snaps"], route_class=StrictRoute)


class Sharing(Asked):
    expires_at: Moment | None = Field(
        None, description="When the link expires; by default it works until it is revoked."
    )


class Shared(Shown):
    """The public link of a snap, if it has one."""

    snap_id: UUID
    is_public: bool
    public_share_token: str | None = Field(examples=["0f8fad5bd9cb469fa16570867728950e"])
    public_url: str | None = Field(examples=["https://snaps.example/public/snaps/0f8fad5bd9cb469fa16570867728950e"])
    expires_at: datetime | None = None


@router.post("/{snap_id}/share", responses=NO_SNAP | may_be(_409="It is a draft."))
def share_snap(
    begin: Begins,
    monolith: MonolithDep,
    snap_id: SnapId,
    request_id: RequestId,
    wanted: Sharing | None = None,
) -> Shared:
    """The public link of a snap, created if there is none. An unfinished snap may be shared too."""
    link = marking.share(begin, QUEUE, snap_id, wanted.expires_at if wanted else None, request_id)
    return _shown(snap_id, link, url_of_link(monolith, link.token))


@router.get("/{snap_id}/share", responses=NO_SNAP)
def show_share(own: Own, monolith: MonolithDep, snap_id: SnapId) -> Shared:
    """The public link of a snap, if it has one."""
    snaps.read(own.db, own.code, snap_id)
    share = sharing.in_force(own.db, own.code, snap_id)
    return _shown(snap_id, share, url_of_link(monolith, share.token) if share else None)


@router.post("/{snap_id}/revoke", responses=NO_SNAP)
def revoke_share(begin: Begins, snap_id: SnapId) -> Shared:
    """Ends the link, and with it all addresses of its files. Sharing again makes a different link."""
    marking.revoke(begin, snap_id)
    return _shown(snap_id, None, None)


def _shown(snap_id: UUID, share: Share | None, url: str | None) -> Shared:
    return Shared(
        snap_id=snap_id,
        is_public=share is not None,
        public_share_token=share.token if share else None,
        public_url=url,
        expires_at=share.expires_at if share else None,
    )
