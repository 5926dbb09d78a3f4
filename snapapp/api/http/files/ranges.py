"""Conditional requests and ranges by RFC 9110, as pure functions of the headers and the stored object."""

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
    """The bytes from `start` to before `stop`."""

    start: int
    stop: int


def status_of_unmet_condition(headers: Headers, stored: Stored) -> int | None:
    """The status of a condition that is not met, 412 or 304; None if all are. In the order of the RFC: If-Match goes
    before If-Unmodified-Since, If-None-Match before If-Modified-Since."""
    if (tags := headers.get("if-match")) is not None:
        if not _matches(tags, stored, weakly=False):
            return 412
    elif (since := date_of(headers.get("if-unmodified-since"))) and _changed_after(since, stored):
        return 412
    if (tags := headers.get("if-none-match")) is not None:
        return 304 if _matches(tags, stored, weakly=True) else None
    if (since := date_of(headers.get("if-modified-since"))) and not _changed_after(since, stored):
        return 304
    return None


def requested_part(headers: Headers, stored: Stored) -> Part | None:
    """The range that is asked for; None for the whole object. The whole is also sent for a Range header that cannot be
    read, and for several ranges: no client needs them, and assembling them costs more than it saves."""
    ranges = headers.getlist("range")
    match = _RANGE.fullmatch(ranges[0]) if len(ranges) == 1 else None
    if match is None or not _is_same_version(headers.get("if-range"), stored):
        return None
    first, last = match.groups()
    if (not first and not last) or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(0, stored.size - int(last))
    stop = min(stored.size, int(last) + 1) if first and last else stored.size
    if start >= stop:
        raise Unsatisfiable(f"The range starts past the end: there are {stored.size} bytes")
    return Part(start, stop)


def last_modified(stored: Stored) -> str:
    return format_datetime(stored.modified.astimezone(UTC), usegmt=True)


def _is_same_version(validator: str | None, stored: Stored) -> bool:
    return validator is None or validator in (stored.etag, last_modified(stored))


def _matches(tags: str, stored: Stored, *, weakly: bool) -> bool:
    tag_set = {tag for weak, tag in _TAG.findall(tags) if weakly or not weak}
    return tags.strip() == "*" or stored.etag in tag_set


def _changed_after(since: datetime, stored: Stored) -> bool:
    return stored.modified.replace(microsecond=0) > since


def date_of(text: str | None) -> datetime | None:
    """The date of a header; None if it is missing or no date."""
    try:
        date = parsedate_to_datetime(text or "")
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return None
