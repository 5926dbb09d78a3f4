"""Sends a message to a webhook's server. The guard applies as for videos, because the URL comes from outside too."""

import http.client
from collections.abc import Mapping

from snapapp.sources import guard
from snapapp.sources.connection import Connection, Pace
from snapapp.sources.errors import Reason, SourceUnavailable
from snapapp.sources.limits import Limits


def post(url: str, body: bytes, headers: Mapping[str, str], limits: Limits) -> int:
    """Sends the message and returns the answer's status. Redirects are not followed, because the signed message is for
    the named receiver only."""
    target = guard.source_url(url)
    pace = Pace(limits.timeout, limits.stall)
    with pace.running():
        addresses = guard.addresses(target, limits.allowed_hosts, pace.allowance())
        connection = Connection(target, addresses, pace)
        try:
            connection.request("POST", target.path, body, dict(headers))
            with connection.getresponse() as response:
                return response.status  # the body, which may break off or never end, is not read
        except (OSError, http.client.HTTPException) as error:
            raise SourceUnavailable(Reason.UNREACHABLE, f"{target.host} did not take it: {error}") from error
        finally:
            connection.close()
