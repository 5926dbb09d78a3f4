"""The routers of the API. What all their routes have in common is said here and not where they are added to the
application: FastAPI would build each route once more, at the first request."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from fastapi import APIRouter, Security
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.errors import RESPONSES
from snapapp.api.http.requests.tokens import INTERNAL_TOKEN


class Router(APIRouter):
    def __init__(self, prefix: str = "", **options: Any) -> None:
        super().__init__(prefix=prefix, responses=RESPONSES, **options)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().add_api_route(path, endpoint if iscoroutinefunction(endpoint) else _in_a_thread(endpoint), **options)


def _in_a_thread(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """FastAPI takes a second thread to check what a plain function returned, and commits after that. While all threads
    wait for a row that this transaction holds, there is none."""

    @wraps(endpoint)
    async def run(**arguments: Any) -> Any:
        return await run_in_threadpool(endpoint, **arguments)

    return run


class InternalRouter(Router):
    """For whoever has the internal token."""

    def __init__(self, prefix: str = "", **options: Any) -> None:
        super().__init__(prefix, dependencies=[Security(INTERNAL_TOKEN)], **options)
