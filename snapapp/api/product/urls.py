"""Makes URLs of our files and pages that work without headers."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.files import media_links
from snapapp.api.http.tenancy import Credentials, Presented
from snapapp.api.product.snap_views import Places
from snapapp.domain import operators
from snapapp.domain.tables import Snap
from snapapp.process.monolith import Monolith


def for_page(monolith: Monolith, credentials: Credentials, server: str = "") -> Places:
    """Signed links to the tenant's files: `/media/…`. They expire, or end with the tenant's token. Used once the tenant
    is known. For a page without the server, because a browser may have come by another name of it."""
    now = datetime.now(UTC)

    def of(snap: Snap) -> str:
        assert credentials.tenant
        return server + media_links.base(monolith, credentials.tenant, snap.media_prefix or "", now)

    return of


def signed(monolith: Monolith, prefix: str, now: datetime) -> str:
    """The beginning of links to files that belong to no tenant, to which a file's name is added."""
    return _public(monolith) + monolith.links.base(prefix, now)


def _public(monolith: Monolith) -> str:
    return monolith.settings.public_base_url or ""


def for_link(monolith: Monolith, token: str) -> Places:
    """Addresses of files below a public link, which end with the link."""
    base = url_of_link(monolith, token)
    return lambda _: f"{base}/media/"


def url_of_link(monolith: Monolith, token: str) -> str:
    """The URL of a public link. Without a public address it is only a path, because a request's Host header proves
    nothing."""
    return f"{_public(monolith)}/public/snaps/{token}"


def url_of_personal_link(monolith: Monolith, code: str, secret: str) -> str:
    """The URL at which an operator signs in; only a path without a public address."""
    return _public(monolith) + operators.path_of_link(code, secret)


async def _places(monolith: MonolithDep, credentials: Presented) -> Places:
    return for_page(monolith, credentials, _public(monolith))


Placed = Annotated[Places, Depends(_places)]
