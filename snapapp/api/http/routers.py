"""The routers of the API. What all their routes have in common is said here and not where they are added to the
application: FastAPI would build each route once more, at the first request."""

from typing import Any

from fastapi import APIRouter, Security

from snapapp.api.http.errors import RESPONSES
from snapapp.api.http.requests.tokens import INTERNAL_TOKEN


class Router(APIRouter):
    def __init__(self, prefix: str = "", **options: Any) -> None:
        super().__init__(prefix=prefix, responses=RESPONSES, **options)


class InternalRouter(Router):
    """For whoever has the internal token."""

    def __init__(self, prefix: str = "", **options: Any) -> None:
        super().__init__(prefix, dependencies=[Security(INTERNAL_TOKEN)], **options)
