"""Rows and objects compared, both ways. Bytes are durable before the row that publishes them commits, so a crash
between the two leaves objects without a row; the other way round nothing should ever be found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from snapapp.storage.errors import StorageError
from snapapp.storage.model import Stored

T = TypeVar("T")


class OutOfOrder(StorageError):
    """What should ascend does not. Comparing on would take published objects for orphans."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a row says there is: a prefix, and the files that must be below it; none named: any."""

    prefix: str
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object below no published prefix, older than `before`."""

    stored: Stored


@dataclass(frozen=True, slots=True)
class Missing:
    """A row whose objects are not all there; with no names, none is."""

    prefix: str
    names: tuple[str, ...] = ()


def compared(
    published: Iterable[Published], stored: Iterable[Stored], *, before: datetime
) -> Iterator[Orphan | Missing]:
    """Both ascend by the bytes of prefix and key (in SQL: COLLATE "C"), so however many there are, one of each is held.

    Both are read while the house goes on, so what is found is a suspicion: ask the row again before acting on it. And
    `before` lies further back than an attempt may last, else what is still being made would be an orphan."""
    rows = _merged(_ascending(published, lambda row: row.prefix))
    row = next(rows, None)
    seen: set[str] = set()
    for each in _ascending(stored, lambda each: each.key):
        while row and row.prefix < each.key and not each.key.startswith(row.prefix):
            yield from _lacking(row, seen)
            row, seen = next(rows, None), set()
        if row and each.key.startswith(row.prefix):
            seen.add(each.key.removeprefix(row.prefix))
        elif each.modified < before:
            yield Orphan(each)
    while row:
        yield from _lacking(row, seen)
        row, seen = next(rows, None), set()


def _lacking(row: Published, seen: set[str]) -> Iterator[Missing]:
    if not seen:
        yield Missing(row.prefix)
    elif lost := row.names - seen:
        yield Missing(row.prefix, tuple(sorted(lost)))


def _merged(rows: Iterable[Published]) -> Iterator[Published]:
    """Two rows may publish one prefix."""
    for prefix, same in groupby(rows, key=lambda row: row.prefix):
        yield Published(prefix, frozenset().union(*(row.names for row in same)))


def _ascending(items: Iterable[T], name: Callable[[T], str]) -> Iterator[T]:
    last = ""
    for item in items:
        if name(item) < last:
            raise OutOfOrder(f"{name(item)} comes after {last}")
        last = name(item)
        yield item
