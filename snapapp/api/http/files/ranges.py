"""What RFC 9110 says of conditions and ranges, as pure functions over headers and what is known of an object."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.datastructures import Headers

from snapapp.storage import Stored

_RANGE = re.compile(r"bytes[ \t]*=[ \t]*([0-9]{0,30})-([0-9]{0,30})[ \t]*", re.IGNORECASE)
_TAG = re.compile(r'(W/)?("[^"]*")')


class Unsatisfiable(Exception):
    """The range lies outside of the object."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes from `start` up to, not including, `stop`."""

    start: int
    stop: int


def unmet(headers: Headers, stored: Stored) -> int | None:
    """412 or 304 where a condition says so, in the order of the RFC: a tag outranks the date of its kind."""
    if (tags := headers.get("if-match")) is not None:
        if not _names(tags, stored, weakly=False):
            return 412
    elif (since := date_of(headers.get("if-unmodified-since"))) and _changed_after(since, stored):
        return 412
    if (tags := headers.get("if-none-match")) is not None:
        return 304 if _names(tags, stored, weakly=True) else None
    if (since := date_of(headers.get("if-modified-since"))) and not _changed_after(since, stored):
        return 304
    return None


def asked(headers: Headers, stored: Stored) -> Part | None:
    """The one range that is asked for; None for all of it, which is also the answer to several ranges (nobody needs
    them, and put together they cost more than they save), and to what cannot be read."""
    ranges = headers.getlist("range")
    found = _RANGE.fullmatch(ranges[0]) if len(ranges) == 1 else None
    if found is None or not _is_of_this(headers.get("if-range"), stored):
        return None
    first, last = found.groups()
    if (not first and not last) or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(0, stored.size - int(last))
    stop = min(stored.size, int(last) + 1) if first and last else stored.size
    if start >= stop:
        raise Unsatisfiable(f"The range starts past the end: there are {stored.size} bytes")
    return Part(start, stop)


def last_modified(stored: Stored) -> str:
    return format_datetime(stored.modified.astimezone(UTC), usegmt=True)


def _is_of_this(validator: str | None, stored: Stored) -> bool:
    return validator is None or validator in (stored.etag, last_modified(stored))


def _names(tags: str, stored: Stored, *, weakly: bool) -> bool:
    named = {tag for weak, tag in _TAG.findall(tags) if weakly or not weak}
    return tags.strip() == "*" or stored.etag in named


def _changed_after(since: datetime, stored: Stored) -> bool:
    return stored.modified.replace(microsecond=0) > since


def date_of(text: str | None) -> datetime | None:
    """What is no date is as if it were not there."""
    try:
        date = parsedate_to_datetime(text or "")
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return None
