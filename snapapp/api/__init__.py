"""The routes, by noun. Each validates, calls one function of the domain, and returns a schema."""

from fastapi import FastAPI

from snapapp.api import doctor, fleet, health, jobs, media, metrics, observability, queues, schedules, stream, workers

_NOUNS = (health, metrics, observability, doctor, stream, jobs, queues, workers, fleet, schedules, media)


def add_routes(app: FastAPI) -> None:
    for noun in _NOUNS:
        app.include_router(noun.router)
