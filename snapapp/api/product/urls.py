"""Where files and pages of ours are found, as URLs that work without headers."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends

from snapapp.api.http.deps import House
from snapapp.api.http.files import media_links
from snapapp.api.http.tenancy import Claim, Claimed
from snapapp.api.product.snap_views import Places
from snapapp.domain.tables import Snap
from snapapp.process.monolith import Monolith


def for_tenant(house: Monolith, claim: Claim) -> Places:
    """Signed, and ending some day, or with the tenant's token: `/media/…`, behind the public address where one is set.
    Asked for when it is known whose snap it is."""
    return _for_tenant(house, claim, _public(house))


def for_page(house: Monolith, claim: Claim) -> Places:
    """The same on the server that a page came from, which need not be known by the public address."""
    return _for_tenant(house, claim, "")


def _for_tenant(house: Monolith, claim: Claim, server: str) -> Places:
    now = datetime.now(UTC)

    def of(snap: Snap) -> str:
        assert claim.tenant
        return server + media_links.base(house, claim.tenant, snap.media_prefix or "", now)

    return Places(of)


def signed(house: Monolith, prefix: str, now: datetime) -> str:
    """Of files that are nobody's. To be followed by the name of one below the prefix."""
    return _public(house) + house.links.base(prefix, now)


def _public(house: Monolith) -> str:
    return house.settings.public_base_url or ""


def for_link(house: Monolith, token: str) -> Places:
    """Below the link, so that they end with it."""
    base = house.settings.public_base_url or ""
    return Places(lambda _: f"{base}/public/snaps/{token}/media/")


def url_of_link(house: Monolith, token: str) -> str:
    """Without a public address a bare path: the name by which a request came is anybody's word."""
    return f"{house.settings.public_base_url or ''}/public/snaps/{token}"


async def _places(house: House, claim: Claimed) -> Places:
    return for_tenant(house, claim)


Placed = Annotated[Places, Depends(_places)]
