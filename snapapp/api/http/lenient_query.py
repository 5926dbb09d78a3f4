"""Queries, read as leniently as the old service did: what stands there empty was not given."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request, Response

from snapapp.api.http.strict_json import StrictRoute


class LenientRoute(StrictRoute):
    """Blanks around a value do not count either. Bodies are read as strictly as elsewhere."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def read_leniently(request: Request) -> Response:
            request.scope["query_string"] = tidy(request.scope["query_string"])
            return await answer(request)

        return read_leniently


def tidy(query: bytes) -> bytes:
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    kept = [(name, value.strip()) for name, value in given if value.strip() or _is_nobody(name, value)]
    return urlencode(kept).encode()


def _is_nobody(name: str, value: str) -> bool:
    """Somebody was to be named, and only blanks were typed: that is refused."""
    return name == "nickname" and value != ""
