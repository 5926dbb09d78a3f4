"""Reads queries as leniently as the old service did: an empty parameter counts as not given."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request, Response

from snapapp.api.http.strict_json import StrictRoute


class LenientRoute(StrictRoute):
    """A route that ignores empty parameters and blanks around values. Bodies are read as strictly as elsewhere."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def read_leniently(request: Request) -> Response:
            request.scope["query_string"] = tidy(request.scope["query_string"])
            return await answer(request)

        return read_leniently


def tidy(query: bytes) -> bytes:
    parameters = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    meaningful = [
        (name, value.strip()) for name, value in parameters if value.strip() or _is_blank_nickname(name, value)
    ]
    return urlencode(meaningful).encode()


def _is_blank_nickname(name: str, value: str) -> bool:
    """Whether this is the filter by person, with blanks only. It is kept, so that the route refuses it: if it were
    dropped like other blank parameters, a list of one person's snaps would silently become a list of everybody's. The
    contract answers blank nicknames with 400, and ignores every other blank parameter."""
    return name == "nickname" and value != ""
