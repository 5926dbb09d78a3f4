"""Where files and pages of ours are found, as URLs that work without headers."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request

from snapapp.api.deps import House
from snapapp.api.snap_shown import Places
from snapapp.monolith import Monolith


def for_tenant(house: Monolith) -> Places:
    """Signed, and ending some day: `/media/…`, behind the public address where one is set."""
    now = datetime.now(UTC)
    return Places(lambda snap: signed(house, snap.media_prefix or "", now))


def signed(house: Monolith, prefix: str, now: datetime) -> str:
    """To be followed by the name of a file below the prefix."""
    return (house.settings.public_base_url or "") + house.links.base(prefix, now)


def for_link(house: Monolith, token: str) -> Places:
    """Below the link, and dead when that is."""
    base = house.settings.public_base_url or ""
    return Places(lambda _: f"{base}/public/snaps/{token}/media/")


def url_of_link(request: Request, house: Monolith, token: str) -> str:
    """To be passed on, so it is whole: without a public address, as this request came to us."""
    base = house.settings.public_base_url or str(request.base_url).rstrip("/")
    return f"{base}/public/snaps/{token}"


async def _places(house: House) -> Places:
    return for_tenant(house)


Placed = Annotated[Places, Depends(_places)]
