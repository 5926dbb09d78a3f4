"""Lists page by page. Those of the contract have the parameters offset, limit, sortBy (from a fixed set) and sortDir,
and an envelope; those of /internal have limit and before."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from snapapp.api.http.schema import Digits, Id, Shown
from snapapp.domain.finding.paging import FURTHEST, LONGEST, Page, Window

Offset = Annotated[int, Query(ge=0, le=FURTHEST, description="How many to skip."), Digits]
Limit = Annotated[int, Query(ge=1, le=LONGEST, description="How many at most."), Digits]
BEFORE = Query(description="`next` of the page before.")
Before = Annotated[Id | None, BEFORE]


def windows(*names: str, direction: Literal["asc", "desc"] = "desc") -> Callable[..., Awaitable[Window]]:
    """A dependency that reads the wanted part of a list. The first of the names is the default sort. An unknown sort is
    refused later, by the domain, in the contract's words."""
    by = {"enum": [*names, ""], "default": names[0]}  # forms send an empty text for "not given"
    directions = {"enum": ["asc", "desc", ""], "default": direction}

    async def window(
        offset: Offset = 0,
        limit: Limit = 50,
        sort_by: Annotated[
            str | None, Query(alias="sortBy", description="What to sort by; ties by id.", json_schema_extra=by)
        ] = None,
        sort_dir: Annotated[
            str | None, Query(alias="sortDir", description="Which way, in any case.", json_schema_extra=directions)
        ] = None,
    ) -> Window:
        return Window(offset, limit, sort_by, sort_dir)

    return window


class PageShown(Shown):
    """The part of the list that this page is."""

    offset: int = Field(examples=[0])
    limit: int = Field(examples=[50])
    returned: int = Field(examples=[2])
    has_more: bool
    sort_by: str = Field(examples=["createdAt"])
    sort_dir: Literal["asc", "desc"]


class Listed(Shown):
    """The envelope of every list; `total` counts the items on this page."""

    total: int = Field(description="How many items this page has.", examples=[2])
    page: PageShown


def listed(part: Page[Any], items: Sequence[Any]) -> dict[str, Any]:
    """The fields that all lists share."""
    return {"total": part.returned, "page": PageShown.model_validate(part), "items": items}
