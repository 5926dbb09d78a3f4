"""Checks that a column can hold a value, made before the statement runs: an error of the database would end the
caller's transaction. Each check returns what is wrong, or None."""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from snapapp.errors import Invalid


def text(value: object, longest: int, *, shortest: int = 1) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    if len(value) < shortest:
        return "must not be empty"
    if len(value) > longest:
        return f"must have at most {longest} characters"
    return None if _is_storable(value) else "holds a character that cannot be stored"


def _is_storable(value: str) -> bool:
    """PostgreSQL's text cannot hold NUL, and UTF-8 cannot encode a lone surrogate."""
    if "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def number(value: object, low: float, high: float) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        return "must be a finite number"
    return None if low <= value <= high else f"must be from {low:g} to {high:g}"


def _is_finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)  # math.isfinite raises for an int that no float can hold


def whole(value: object, low: int, high: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "must be a whole number"
    return None if low <= value <= high else f"must be from {low} to {high}"


def moment(value: datetime) -> str | None:
    if value.utcoffset() is None:
        return "must have an offset"
    # near the years 1 and 9999 the offset would lead to a moment that Python cannot represent
    return None if _EARLIEST <= value <= _LATEST else f"must be from {_EARLIEST.year} to {_LATEST.year}"


_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)


def insist(flaws: Mapping[str, str | None], further: Iterable[str] = ()) -> None:
    """Raises Invalid with every flaw at once."""
    details = [f"{field}: {flaw}" for field, flaw in flaws.items() if flaw]
    details += further
    if details:
        raise Invalid(*details)
