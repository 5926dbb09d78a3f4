"""Conditions and ranges, without a server."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from snapapp.api.http.files.ranges import Part, Unsatisfiable, requested_part, status_of_unmet_condition
from snapapp.storage import Stored

MODIFIED = datetime(2026, 5, 4, 12, 0, 0, 700_000, tzinfo=UTC)
TAG = '"5-a"'
HUNDRED = Stored("key", 100, TAG, MODIFIED)
EMPTY = Stored("key", 0, TAG, MODIFIED)


def date(**after: float) -> str:
    return format_datetime((MODIFIED + timedelta(**after)).replace(microsecond=0), usegmt=True)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bytes=0-0", Part(0, 1)),
        ("bytes=10-19", Part(10, 20)),
        ("bytes=90-", Part(90, 100)),
        ("bytes=-10", Part(90, 100)),
        ("bytes=-100", Part(0, 100)),
        ("bytes=-1000", Part(0, 100)),
        ("bytes=0-99", Part(0, 100)),
        ("bytes=99-99999999999999999999", Part(99, 100)),
        ("Bytes = 1-2 ", Part(1, 3)),
    ],
)
def test_one_range_is_understood(text: str, part: Part) -> None:
    assert requested_part(Headers({"range": text}), HUNDRED) == part


@pytest.mark.parametrize(
    "text",
    [
        "bytes=0-0,5-9",
        "bytes=0-0, -1",
        "bytes=",
        "bytes=-",
        "bytes=9-1",
        "bytes=a-b",
        "bytes=+1-2",
        "bytes=-1-2",
        "bytes=1_0-20",
        "bytes=0x1-2",
        "items=0-1",
        "0-1",
        "bytes",
        "",
        f"bytes=0-{'9' * 40}",
        "bytes=" + ",".join(f"{start}-" for start in range(10_000)),
    ],
)
def test_several_ranges_and_what_is_none_get_all_of_it(text: str) -> None:
    """4.1: a range header costs nothing, however long."""
    assert requested_part(Headers({"range": text}), HUNDRED) is None


def test_digits_of_other_scripts_are_none() -> None:
    assert requested_part(Headers(raw=[(b"range", "bytes=²-³".encode("latin-1"))]), HUNDRED) is None


def test_two_range_headers_are_not_one() -> None:
    assert requested_part(Headers(raw=[(b"range", b"bytes=0-1"), (b"range", b"bytes=2-3")]), HUNDRED) is None


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("bytes=100-", HUNDRED),
        ("bytes=100-200", HUNDRED),
        ("bytes=99999999999999999999-", HUNDRED),
        ("bytes=-0", HUNDRED),
        ("bytes=0-", EMPTY),
        ("bytes=-1", EMPTY),
    ],
)
def test_a_range_outside_of_it_cannot_be_had(text: str, stored: Stored) -> None:
    with pytest.raises(Unsatisfiable, match=f"there are {stored.size} bytes"):
        requested_part(Headers({"range": text}), stored)


@given(st.text(max_size=60), st.integers(0, 2**40))
def test_any_range_is_within_the_object_or_all_of_it_or_none(text: str, size: int) -> None:
    headers = Headers(raw=[(b"range", f"bytes={text}".encode("utf-8", "replace"))])
    try:
        part = requested_part(headers, Stored("key", size, TAG, MODIFIED))
    except Unsatisfiable:
        return
    assert part is None or 0 <= part.start < part.stop <= size


@pytest.mark.parametrize(
    ("validator", "is_met"),
    [(TAG, True), (date(), True), ('"other"', False), (f"W/{TAG}", False), (date(seconds=1), False), ("", False)],
)
def test_a_range_of_what_it_was_before_gets_all_of_what_it_is(validator: str, is_met: bool) -> None:
    headers = Headers({"range": "bytes=0-9", "if-range": validator})
    assert requested_part(headers, HUNDRED) == (Part(0, 10) if is_met else None)
    assert requested_part(Headers({"range": "bytes=500-", "if-range": '"other"'}), HUNDRED) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"if-none-match": TAG}, 304),
        ({"if-none-match": f'"x", W/{TAG}'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"x"'}, None),
        ({"if-none-match": "nonsense"}, None),
        ({"if-none-match": '"x"', "if-modified-since": date()}, None),
        ({"if-modified-since": date()}, 304),
        ({"if-modified-since": date(days=1)}, 304),
        ({"if-modified-since": date(seconds=-1)}, None),
        ({"if-modified-since": "yesterday"}, None),
        ({"if-modified-since": "Mon, 99 May 99999 25:00:00 GMT"}, None),
        ({"if-match": TAG}, None),
        ({"if-match": "*"}, None),
        ({"if-match": f"W/{TAG}"}, 412),
        ({"if-match": '"x"'}, 412),
        ({"if-unmodified-since": date(seconds=-1)}, 412),
        ({"if-unmodified-since": date()}, None),
        ({"if-match": TAG, "if-unmodified-since": date(seconds=-1)}, None),
        ({"if-match": TAG, "if-none-match": TAG}, 304),
    ],
)
def test_conditions_are_met_or_not(headers: dict[str, str], status: int | None) -> None:
    assert status_of_unmet_condition(Headers(headers), HUNDRED) == status
