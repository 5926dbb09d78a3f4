"""Lists page by page: which part of one is wanted, in which order, and what came of it. Nothing is ever counted: a page
asks for one row more than it shows, and so knows whether there are more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from snapapp.errors import Invalid, UnsupportedSort

T = TypeVar("T")
U = TypeVar("U")
Direction = Literal["asc", "desc"]

LONGEST = 100
_FURTHEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """The part that is wanted; without a sort, the list's own."""

    offset: int = 0
    limit: int = 50
    sort_by: str | None = None
    sort_dir: str | None = None

    def __post_init__(self) -> None:
        details = []
        if not 0 <= self.offset <= _FURTHEST:
            details.append(f"offset: must be from 0 to {_FURTHEST}")
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

    def turned(self, make: Callable[[list[T]], list[U]]) -> "Page[U]":
        """The same page of other things."""
        return Page(make(self.items), self.offset, self.limit, self.has_more, self.sort_by, self.sort_dir)


@dataclass(frozen=True, slots=True)
class Order:
    """By what a list can be sorted: the names that people send and what stands in ORDER BY for each. The first is the
    default, in the direction given. Ties are ordered by `tie`, so a page never repeats what another one had."""

    columns: Mapping[str, str]
    default_dir: Direction
    tie: str

    def of(self, window: Window) -> tuple[str, Direction]:
        by = window.sort_by or next(iter(self.columns))
        if by not in self.columns:
            raise UnsupportedSort(by, self.columns)
        wanted = (window.sort_dir or self.default_dir).lower()
        return by, "desc" if wanted == "desc" else "asc"

    def sql(self, by: str, direction: Direction) -> str:
        return f"{self.columns[by]} {direction}, {self.tie} {direction}"


def page(rows: Sequence[T], window: Window, by: str, direction: Direction) -> Page[T]:
    """Of rows that were asked for with one more than the window's limit."""
    return Page(list(rows[: window.limit]), window.offset, window.limit, len(rows) > window.limit, by, direction)
