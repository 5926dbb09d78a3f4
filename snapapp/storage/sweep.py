"""Compares rows with objects, both ways. Bytes are durable before the row that publishes them commits. So a crash in
between leaves objects without a row; a row without its objects should never be found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from snapapp.storage.errors import StorageError
from snapapp.storage.model import Stored

T = TypeVar("T")


class OutOfOrder(StorageError):
    """Rows or objects are not in ascending order. To go on would take published objects for orphans."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a row publishes: a prefix, and the files that must be below it. With no names, any one file is enough."""

    prefix: str
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Missing:
    """A row some of whose objects are missing: those in `names`, or all of them if `names` is empty."""

    prefix: str
    names: tuple[str, ...] = ()


def compared(
    published: Iterable[Published], stored: Iterable[Stored], *, before: datetime
) -> Iterator[Stored | Missing]:
    """Finds orphans, which are objects below no published prefix and older than `before`, and missing objects. Both
    inputs ascend by the bytes of prefix and key (in SQL: COLLATE "C"), so only one of each is in memory. Rows and
    objects change while they are read: ask the row again before you act on a result. `before` must lie further back
    than an attempt may last; otherwise files that are still being made would be orphans."""
    rows = _merge_equal(_ascending(published, lambda row: row.prefix))
    row = next(rows, None)
    seen: set[str] = set()
    for each in _ascending(stored, lambda each: each.key):
        while row and row.prefix < each.key and not each.key.startswith(row.prefix):
            yield from _lacking(row, seen)
            row, seen = next(rows, None), set()
        if row and each.key.startswith(row.prefix):
            seen.add(each.key.removeprefix(row.prefix))
        elif each.modified < before:
            yield each
    while row:
        yield from _lacking(row, seen)
        row, seen = next(rows, None), set()


def _lacking(row: Published, seen: set[str]) -> Iterator[Missing]:
    if not seen:
        yield Missing(row.prefix)
    elif lost := row.names - seen:
        yield Missing(row.prefix, tuple(sorted(lost)))


def _merge_equal(rows: Iterable[Published]) -> Iterator[Published]:
    """Merges rows that publish the same prefix."""
    for prefix, same in groupby(rows, key=lambda row: row.prefix):
        yield Published(prefix, frozenset().union(*(row.names for row in same)))


def _ascending(items: Iterable[T], name: Callable[[T], str]) -> Iterator[T]:
    last = ""
    for item in items:
        if name(item) < last:
            raise OutOfOrder(f"{name(item)} comes after {last}")
        last = name(item)
        yield item
