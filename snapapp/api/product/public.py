"""/public/snaps/{token}: the snap behind a public link. The link is the only permission; no headers count."""

from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request, Response
from sqlalchemy.orm import Session

from snapapp.api.http.deps import MonolithDep, Transaction
from snapapp.api.http.errors import may_be
from snapapp.api.http.files import media
from snapapp.api.http.routers import Router
from snapapp.api.product.pages import public_page
from snapapp.api.product.snap_views import PublicSnap, name_of, public_of
from snapapp.api.product.urls import for_link
from snapapp.domain import sharing
from snapapp.domain.tables import Snap
from snapapp.errors import PublicSnapNotFound
from snapapp.postgres.database import session

router = Router(prefix="/public/snaps", tags=["public"])

Token = Annotated[
    str,
    Path(description="What the link ends with.", examples=["0f8fad5bd9cb469fa16570867728950e"], max_length=200),
]
_DEAD = may_be(_404="There is no such link, or it was revoked, or has expired.")


_PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}}}


@router.get("/{token}", response_model=PublicSnap, responses=_DEAD | _PAGE)
def show_public_snap(
    db: Transaction, monolith: MonolithDep, token: Token, request: Request, response: Response
) -> PublicSnap | Response:
    """The evidence behind a link, without e-mail, errors or internal ids: as JSON, or as a page if `Accept` prefers
    one."""
    if public_page.is_wanted(request):
        return _page(db, monolith, token, request)
    response.headers["Cache-Control"] = "private, no-cache"  # a link may be revoked at any time
    response.headers["X-Robots-Tag"] = "noindex, nofollow"
    response.headers["Vary"] = "Accept, Accept-Language, User-Agent"
    return public_of(sharing.read_public(db, token), token, for_link(monolith, token))


def _page(db: Session, monolith: MonolithDep, token: str, request: Request) -> Response:
    """The page of a link. Its files have relative addresses, because the browser may have come by another name than the
    public address."""
    try:
        snap = sharing.read_public(db, token)
    except PublicSnapNotFound:
        return public_page.dead(request)
    poster = name_of(snap.extras.get("poster"))
    shown = public_of(snap, token, lambda _: f"/public/snaps/{token}/media/")
    return public_page.shown(request, shown, poster, monolith.settings.public_base_url or "")


def _snap_behind(monolith: MonolithDep, token: Token) -> Snap:
    """The snap, read in a transaction that ends at once, so that a slow client does not keep one open."""
    with session(monolith.web) as db, db.begin():
        return sharing.read_public(db, token)


@router.get("/{token}/media/{name}", response_class=Response, responses=media.RESPONSES | _DEAD)
@router.head("/{token}/media/{name}", include_in_schema=False)
async def show_public_file(
    monolith: MonolithDep,
    snap: Annotated[Snap, Depends(_snap_behind)],
    name: Annotated[str, Path(description="The file's name.", examples=["frame_00001.jpg"], max_length=200)],
    request: Request,
) -> Response:
    """A frame, the clip, or the poster of a snap, for as long as its link works."""
    if snap.media_prefix is None or name not in names_of(snap):
        raise HTTPException(404, "Media not found")
    return await media.sent(monolith.storage, snap.media_prefix + name, request)


def names_of(snap: Snap) -> set[str]:
    """The names of the published files; other files below the prefix are not served."""
    files: list[Any] = [*(snap.frames or ()), snap.clip, snap.extras.get("poster"), snap.extras.get("thumbnail")]
    return {name for file in files if (name := name_of(file))}
