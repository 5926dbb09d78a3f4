"""Reads request bodies strictly: JSON that two parsers could understand differently is refused as malformed."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import of_process

_DEEPEST = 200  # levels; one of our parsers fails at 255, PostgreSQL at some thousands
_MOST = 100_000  # lists and objects: a body of 2 MB can have a million, which take 90 MB and 4 s of a processor
_LARGE = 64 * 1024  # bytes; parsing more takes milliseconds, which would block the event loop


class StrictRoute(APIRoute):
    """A route that refuses duplicate keys, NaN, Infinity, deep nesting and too many lists, all of which FastAPI
    accepts."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def read_strictly(request: Request) -> Response:
            return await answer(_StrictRequest(request.scope, request.receive))

        return read_strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= _LARGE:
            return decoded(body)
        # one at a time: the parser does not let other threads run, and behind 30 of 2 MB a health check waited 7 s
        async with of_process(self, "parsing", asyncio.Lock):
            return await run_in_threadpool(decoded, body)


def decoded(body: bytes) -> Any:
    """The JSON value of a body. Raises JSONDecodeError for anything that is wrong with it."""
    if body.count(b"[") + body.count(b"{") > _MOST:
        raise json.JSONDecodeError(f"more than {_MOST} lists and objects", "", 0)
    try:
        value = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError(f"not UTF-8: {error.reason}", "", error.start) from None
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
    except ValueError as error:  # a whole number with more digits than Python reads
        raise json.JSONDecodeError(str(error).partition(";")[0], "", 0) from None
    _refuse_depth(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        doubled = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise json.JSONDecodeError(f"the key {doubled[:60]!r} stands there twice", "", 0)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not JSON", "", 0)


def _refuse_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for outer in level for inner in _within(outer) if isinstance(inner, dict | list)]
        if not level:
            return
    raise json.JSONDecodeError(f"nested more than {_DEEPEST} deep", "", 0)


def _within(outer: Any) -> Any:
    return outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
