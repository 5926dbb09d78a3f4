"""The routes, one module for each noun. A route validates, calls one function of the domain, and returns a schema."""

from collections.abc import Iterator, Sequence
from functools import cache

from fastapi import FastAPI, HTTPException
from fastapi.datastructures import DefaultPlaceholder
from fastapi.routing import APIRoute
from starlette.routing import Match, Route
from starlette.types import Scope

from snapapp.api.http.files import media
from snapapp.api.internal import audit, box, doctor, fleet, history, limits, queues, retention, role, schedules, workers
from snapapp.api.internal.actuator import health, metrics, observability
from snapapp.api.internal.jobs import adding, costs, failures, kinds, live, looking, many, one, relatives
from snapapp.api.product import events, exports, frames, operators, public, sessions, shares, snaps, templates, webhooks
from snapapp.api.product.pages import gallery, operator, people, sign_in
from snapapp.api.product.pages.page import nothing_there
from snapapp.api.product.videos import remote_videos, resumable_uploads, uploads, videos

_TO_FIND = (exports, snaps, shares, uploads, resumable_uploads, remote_videos, videos, templates)
_PRODUCT = (*_TO_FIND, events, webhooks, operators, sessions, public, media, frames, sign_in, gallery, operator, people)
_INTERNAL = (
    health,
    metrics,
    observability,
    doctor,
    live,
    looking,
    adding,
    many,
    one,
    relatives,
    failures,
    kinds,
    queues,
    history,
    limits,
    retention,
    workers,
    fleet,
    schedules,
    audit,
    role,
    box,
    costs,
)
_NOUNS = (*_PRODUCT, *_INTERNAL)


def add_routes(app: FastAPI) -> None:
    """Adds all routes to the app. Each request tries them in this order: a fixed path must come before the path with an
    id in the same place, and rarely used routes come last."""
    refusals, heads = _refusals_and_heads()
    app.routes.extend(refusals)
    for noun in _NOUNS:
        app.routes.extend(noun.router.routes)
    app.add_exception_handler(404, nothing_there)  # type: ignore[arg-type]  # starlette types it for Exception
    app.routes.extend(heads)


@cache
def _refusals_and_heads() -> tuple[Sequence[Route], Sequence[Route]]:
    """The routes that those of the nouns ask for: what refuses, and HEAD. Made once, as those are, because it takes
    most of the time of an application."""
    routes = [route for noun in _NOUNS for route in noun.router.routes if isinstance(route, APIRoute)]
    refusals = [
        APIRoute(path, _refuse, methods=methods, include_in_schema=False) for path, methods in _taken_for_ids(routes)
    ]
    return refusals, [_Head(route) for route in routes if _answers_json(route)]


class _Head(Route):
    """HEAD of a path is what its GET answers; the server leaves the body out."""

    def __init__(self, get: APIRoute) -> None:
        super().__init__(get.path, get.endpoint, methods=["HEAD"], include_in_schema=False)
        self.app = get.app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        found["route"] = self  # as FastAPI's routes tell: requests are counted by it
        return match, found


def _answers_json(route: APIRoute) -> bool:
    """Whether the route gets a HEAD route here, whose body the server leaves out. Routes of files have their own HEAD,
    and streams have none, because they do not end."""
    return route.methods == {"GET"} and isinstance(route.response_class, DefaultPlaceholder)


def _taken_for_ids(routes: Sequence[APIRoute]) -> Iterator[tuple[str, list[str]]]:
    """Fixed paths that a path with an id would also match, each with the methods that only the path with the id has.
    They are refused, so that `DELETE /v2/snaps/mine` does not take `mine` for an id."""
    for fixed in {route.path for route in routes if "{" not in route.path}:
        own = [route for route in routes if route.path == fixed]
        neighbours = [route for route in routes if "{" in route.path and route.path_regex.match(fixed)]
        if others := _methods(neighbours) - _methods(own):
            yield fixed, sorted(others)


def _methods(routes: Sequence[APIRoute]) -> set[str]:
    return {method for route in routes for method in route.methods or ()}


async def _refuse() -> None:
    raise HTTPException(405)
