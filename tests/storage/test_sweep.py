"""Rows and objects compared: what lost its row is found, what lost its bytes is told, and nothing published is ever
taken for an orphan."""

import random
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.storage import Storage, Stored
from snapapp.storage.sweep import Missing, OutOfOrder, Published, compared

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY_AGO = NOW - timedelta(days=1)


def old(*keys: str) -> list[Stored]:
    return [Stored(key, 1, '"x"', NOW - timedelta(days=2)) for key in keys]


def rows(*prefixes: str) -> list[Published]:
    return [Published(prefix) for prefix in prefixes]


def found(published: Iterable[Published], stored: Iterable[Stored]) -> list[str | Missing]:
    findings = compared(published, stored, before=DAY_AGO)
    return [finding.key if isinstance(finding, Stored) else finding for finding in findings]


def test_objects_without_a_row_are_orphans() -> None:
    """FE4: what a crash between the bytes and the commit leaves; also the losers of a fence (FA2)."""
    stored = old("snaps/1/1/a", "snaps/1/2/a", "snaps/1/2/b", "snaps/3/1/a", "stray")
    assert found(rows("snaps/1/2/", "snaps/3/1/"), stored) == ["snaps/1/1/a", "stray"]
    assert found([], stored) == [each.key for each in stored]


def test_a_prefix_is_no_prefix_of_its_neighbours() -> None:
    stored = old("snaps/1/1/a", "snaps/1/12/a", "snaps/12/1/a")
    assert found(rows("snaps/1/1/"), stored) == ["snaps/1/12/a", "snaps/12/1/a"]


def test_what_is_young_may_still_get_its_row() -> None:
    young = [Stored("snaps/1/1/a", 1, '"x"', DAY_AGO), Stored("snaps/1/1/b", 1, '"x"', NOW)]
    assert found([], young) == []


def test_rows_without_their_objects_are_told() -> None:
    """FE5."""
    stored = old("snaps/2/1/a")
    assert found(rows("snaps/1/1/", "snaps/2/1/", "snaps/3/1/"), stored) == [
        Missing("snaps/1/1/"),
        Missing("snaps/3/1/"),
    ]
    assert found(rows("snaps/1/1/"), []) == [Missing("snaps/1/1/")]


def test_files_that_lack_beside_others_are_named() -> None:
    row = Published("snaps/1/1/", frozenset({"a", "b", "c"}))
    assert found([row], old("snaps/1/1/b", "snaps/1/1/more")) == [Missing("snaps/1/1/", ("a", "c"))]
    assert found([row], old("snaps/1/1/a", "snaps/1/1/b", "snaps/1/1/c")) == []


def test_two_rows_may_publish_one_prefix() -> None:
    twice = [Published("snaps/1/1/", frozenset({"a"})), Published("snaps/1/1/", frozenset({"b"}))]
    assert found([*twice, *rows("snaps/2/1/")], old("snaps/1/1/a", "snaps/1/1/b", "snaps/2/1/x")) == []
    assert found(twice, old("snaps/1/1/a")) == [Missing("snaps/1/1/", ("b",))]


def test_what_is_out_of_order_stops_it_before_anything_published_is_called_an_orphan() -> None:
    stored = old("snaps/1/1/a", "snaps/3/1/a", "snaps/2/1/a")
    with pytest.raises(OutOfOrder, match="snaps/2/1/a comes after snaps/3/1/a"):
        found(rows("snaps/1/1/", "snaps/2/1/", "snaps/3/1/"), stored)
    with pytest.raises(OutOfOrder):
        found(rows("snaps/2/1/", "snaps/1/1/"), old("snaps/3/1/a"))


PREFIXES = st.sampled_from([f"snaps/{snap}/{lease}/" for snap in ("1", "11", "2", "a-b", "A") for lease in (1, 2, 10)])


@given(st.sets(PREFIXES), st.dictionaries(PREFIXES, st.sets(st.sampled_from("abc"), min_size=1)))
def test_it_finds_what_sets_would(published: set[str], files: dict[str, set[str]]) -> None:
    keys = [prefix + name for prefix, names in files.items() for name in names]
    findings = found(rows(*sorted(published)), old(*sorted(keys)))
    orphans = {finding for finding in findings if isinstance(finding, str)}
    missing = {finding.prefix for finding in findings if isinstance(finding, Missing)}
    assert orphans == {key for key in keys if key.rpartition("/")[0] + "/" not in published}
    assert missing == published - files.keys()
    assert len(findings) == len(orphans) + len(missing)


@pytest.mark.at_length  # the sweep itself is tested in every run
def test_memory_does_not_grow_with_the_storage() -> None:
    def published() -> Iterator[Published]:
        return (Published(f"snaps/{number:07}/1/") for number in range(0, 200_000, 2))

    def stored() -> Iterator[Stored]:
        return (each for number in range(200_000) for each in old(f"snaps/{number:07}/1/a"))

    tracemalloc.start()
    try:
        count = sum(1 for _ in compared(published(), stored(), before=DAY_AGO))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert count == 100_000


def test_both_storages_list_in_the_order_that_it_needs(storage: Storage) -> None:
    """And what it says to delete leaves what is published, and nothing else."""
    chance = random.Random(7)
    attempts = [f"snaps/{snap}/{lease}/" for snap in ("1", "1-1", "11", "2", "B", "_", "=") for lease in (1, 2, 10)]
    for prefix in chance.sample(attempts, len(attempts)):
        storage.put(f"{prefix}a", b"x")
    published = sorted(chance.sample(attempts, 8))
    later = datetime.now(UTC) + timedelta(minutes=1)
    for finding in [*compared(rows(*published), storage.listed(), before=later)]:
        assert isinstance(finding, Stored)
        storage.delete(finding.key)
    assert [stored.key for stored in storage.listed()] == [f"{prefix}a" for prefix in published]
    assert [*compared(rows(*published), storage.listed(), before=later)] == []
