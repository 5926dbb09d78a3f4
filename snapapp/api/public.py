"""/public/snaps/{token}: what a link shows, to whoever has it. No headers are asked for, and none would help."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response

from snapapp import sharing
from snapapp.api import media
from snapapp.api.deps import House, Writing
from snapapp.api.errors import may_be
from snapapp.api.places import for_link
from snapapp.api.snap_shown import PublicSnap, public_of
from snapapp.snaps import Snap

router = APIRouter(prefix="/public/snaps", tags=["public"])

Token = Annotated[
    str,
    Path(description="What the link ends with.", examples=["0f8fad5bd9cb469fa16570867728950e"], max_length=200),
]
_DEAD = may_be(_404="There is no such link, or it was revoked, or has expired.")


@router.get("/{token}", responses=_DEAD)
def show_public_snap(db: Writing, house: House, token: Token, response: Response) -> PublicSnap:
    """The evidence behind a link: no e-mail, no errors, nothing of the house."""
    response.headers["Cache-Control"] = "private, no-cache"  # a link may be revoked at any time
    response.headers["X-Robots-Tag"] = "noindex, nofollow"
    return public_of(sharing.read_public(db, token), token, for_link(house, token))


def _published(house: House, token: Token) -> Snap:
    """Read and let go: a slow client must not keep a transaction."""
    with house.web.begin() as connection:
        return sharing.read_public(connection, token)


@router.get("/{token}/media/{name}", response_class=Response, responses=media.RESPONSES | _DEAD)
@router.head("/{token}/media/{name}", include_in_schema=False)
async def show_public_file(
    house: House,
    snap: Annotated[Snap, Depends(_published)],
    name: Annotated[str, Path(description="The file's name.", examples=["frame_00001.jpg"], max_length=200)],
    request: Request,
) -> Response:
    """A frame, the clip, or the poster of a snap, for as long as its link works. Async, as all that sends files."""
    if snap.media_prefix is None or name not in names_of(snap):
        raise HTTPException(404, "Media not found")
    return await media.sent(house.storage, snap.media_prefix + name, request)


def names_of(snap: Snap) -> set[str]:
    """What was published, and nothing else that may lie beside it."""
    files: list[Any] = [*(snap.frames or ()), snap.clip, snap.extras.get("poster"), snap.extras.get("thumbnail")]
    return {name for file in files if (name := file.get("file_name") if isinstance(file, dict) else file)}
