"""The routes, by noun. Each validates, calls one function of the domain, and returns a schema."""

from collections.abc import Iterator, Sequence

from fastapi import FastAPI, HTTPException
from fastapi.routing import APIRoute

from snapapp.api import (
    doctor,
    exports,
    fleet,
    frames,
    health,
    jobs,
    media,
    metrics,
    observability,
    public,
    queues,
    schedules,
    sessions,
    shares,
    snap_events,
    snaps,
    stream,
    templates,
    uploads,
    videos,
    webhooks,
    workers,
)

_PRODUCT = (exports, snaps, shares, uploads, videos, templates, snap_events, webhooks, sessions, public, media, frames)
_HOUSE = (health, metrics, observability, doctor, stream, jobs, queues, workers, fleet, schedules)


def add_routes(app: FastAPI) -> None:
    """In this order: a fixed path comes before the one with an id in its place."""
    nouns = (*_PRODUCT, *_HOUSE)
    routes = [route for noun in nouns for route in noun.router.routes if isinstance(route, APIRoute)]
    for path, methods in _taken_for_ids(routes):
        app.add_api_route(path, _refuse, methods=methods, include_in_schema=False)
    for noun in nouns:
        app.include_router(noun.router)


def _taken_for_ids(routes: Sequence[APIRoute]) -> Iterator[tuple[str, list[str]]]:
    """Fixed paths, each with the methods that only its neighbour with an id in that place has: `mine` is no id."""
    for fixed in {route.path for route in routes if "{" not in route.path}:
        own = [route for route in routes if route.path == fixed]
        neighbours = [route for route in routes if "{" in route.path and route.path_regex.match(fixed)]
        if others := _methods(neighbours) - _methods(own):
            yield fixed, sorted(others)


def _methods(routes: Sequence[APIRoute]) -> set[str]:
    return {method for route in routes for method in route.methods or ()}


async def _refuse() -> None:
    raise HTTPException(405)
