"""Lists as the contract has them: offset, limit, sortBy from a whitelist, sortDir; and what they are wrapped in."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from snapapp.api.http.schema import Digits, PageSize, Shown
from snapapp.domain.paging import Page, Window

OFFSET_MAX = 1_000_000

Offset = Annotated[int, Query(ge=0, le=OFFSET_MAX, description="How many to skip."), Digits]


def windows(*names: str, direction: Literal["asc", "desc"] = "desc") -> Callable[..., Awaitable[Window]]:
    """A dependency that reads which part of a list is wanted; the first name is what it is sorted by when nobody says.
    What cannot be sorted by is refused by whoever sorts, in the contract's words."""
    by = {"enum": [*names, ""], "default": names[0]}  # empty, as a form sends it: nobody has said
    directions = {"enum": ["asc", "desc", "ASC", "DESC", ""], "default": direction}

    async def window(
        offset: Offset = 0,
        limit: Annotated[PageSize, Query(description="How many at most.")] = 50,
        sort_by: Annotated[
            str | None, Query(alias="sortBy", description="What to sort by; ties by id.", json_schema_extra=by)
        ] = None,
        sort_dir: Annotated[
            str | None, Query(alias="sortDir", description="Which way.", json_schema_extra=directions)
        ] = None,
    ) -> Window:
        return Window(offset, limit, sort_by, sort_dir)

    return window


class PageShown(Shown):
    """Which part of the list this is."""

    offset: int = Field(examples=[0])
    limit: int = Field(examples=[50])
    returned: int = Field(examples=[2])
    has_more: bool
    sort_by: str = Field(examples=["createdAt"])
    sort_dir: Literal["asc", "desc"]


class Listed(Shown):
    """What every list is wrapped in; `total` counts the items returned here."""

    total: int = Field(description="How many items this page has.", examples=[2])
    page: PageShown


def listed(found: Page[Any], items: Sequence[Any]) -> dict[str, Any]:
    """The fields that all lists share."""
    page = PageShown(
        offset=found.offset,
        limit=found.limit,
        returned=len(items),
        has_more=found.has_more,
        sort_by=found.sort_by,
        sort_dir=found.sort_dir,
    )
    return {"total": len(items), "page": page, "items": items}
