"""A message to somebody's server, guarded like the videos that come from one: its URL is a stranger's too."""

import http.client
from collections.abc import Mapping

from snapapp.sources import guard
from snapapp.sources.connection import Connection, Pace
from snapapp.sources.errors import Reason, SourceUnavailable
from snapapp.sources.limits import Limits

_ENOUGH = 4096  # bytes of an answer that nobody reads


def post(url: str, body: bytes, headers: Mapping[str, str], limits: Limits) -> int:
    """The status of the answer. A redirect is an answer, not followed: what is signed is for the one who was named."""
    place = guard.place(url)
    pace = Pace(limits.timeout, limits.stall)
    with pace.running():
        addresses = guard.addresses(place, limits.allowed_hosts, pace.allowance())
        connection = Connection(place, addresses, pace)
        try:
            connection.request("POST", place.path, body, dict(headers))
            response = connection.getresponse()
            response.read(_ENOUGH)
            return response.status
        except (OSError, http.client.HTTPException) as error:
            raise SourceUnavailable(Reason.UNREACHABLE, f"{place.shown} did not take it: {error}") from error
        finally:
            connection.close()
