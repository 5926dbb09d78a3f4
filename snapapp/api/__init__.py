"""The routes, by noun. Each validates, calls one function of the domain, and returns a schema."""

from fastapi import FastAPI

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
    for noun in (*_PRODUCT, *_HOUSE):
        app.include_router(noun.router)
