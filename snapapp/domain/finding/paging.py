"""Lists page by page: the part of a list that is asked for, its order, and the page that results. Rows are never
counted: each query asks for one row more than the page shows, which tells whether there are more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from sqlalchemy import ColumnElement, Select, asc, desc
from sqlalchemy.orm import InstrumentedAttribute

from snapapp.errors import Invalid, UnsupportedSort

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S", bound=Select[*tuple[Any, ...]])
Direction = Literal["asc", "desc"]

LONGEST = 100  # items of a page
FURTHEST = 1_000_000  # items before it


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a list that is asked for; without `sort_by` the list's own order applies."""

    offset: int = 0
    limit: int = 50
    sort_by: str | None = None
    sort_dir: str | None = None

    def __post_init__(self) -> None:
        details = []
        if not 0 <= self.offset <= FURTHEST:
            details.append(f"offset: must be from 0 to {FURTHEST}")
        if not 1 <= self.limit <= LONGEST:
            details.append(f"limit: must be from 1 to {LONGEST}")
        if self.sort_dir is not None and self.sort_dir.lower() not in ("asc", "desc"):
            details.append("sortDir: must be asc or desc")
        if details:
            raise Invalid(*details)


FIRST = Window()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    offset: int
    limit: int
    has_more: bool
    sort_by: str
    sort_dir: Direction

    @property
    def returned(self) -> int:
        return len(self.items)

    def turned(self, make: Callable[[list[T]], list[U]]) -> "Page[U]":
        """The same page with other items."""
        return Page(make(self.items), self.offset, self.limit, self.has_more, self.sort_by, self.sort_dir)


@dataclass(frozen=True, slots=True)
class Order:
    """The sort orders of a list: the names that clients send, and the column of each. The first is the default, in the
    direction `default_dir`. Rows that are equal are ordered by `tie`, so no row appears on two pages."""

    columns: Mapping[str, ColumnElement[Any] | InstrumentedAttribute[Any]]
    default_dir: Direction
    tie: ColumnElement[Any] | InstrumentedAttribute[Any]

    def of(self, window: Window) -> tuple[str, Direction]:
        by = window.sort_by or next(iter(self.columns))
        if by not in self.columns:
            raise UnsupportedSort(by, self.columns)
        direction = (window.sort_dir or self.default_dir).lower()
        return by, "desc" if direction == "desc" else "asc"

    def cut(self, wanted: S, window: Window) -> S:
        """The query with the window's rows and one row more, which tells `page` whether there are more."""
        by, direction = self.of(window)
        in_direction = asc if direction == "asc" else desc
        in_order = wanted.order_by(in_direction(self.columns[by]), in_direction(self.tie))
        return in_order.offset(window.offset).limit(window.limit + 1)

    def page(self, rows: Sequence[T], window: Window) -> Page[T]:
        """Makes the page of the rows that `cut` selected."""
        return Page(list(rows[: window.limit]), window.offset, window.limit, len(rows) > window.limit, *self.of(window))
