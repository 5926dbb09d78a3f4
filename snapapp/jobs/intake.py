"""`enqueue`: checks what comes in, fills in what the kind's processor declares, and leaves the rest to the queue."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from snapapp.jobs import queue as _queue
from snapapp.jobs import registry
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import JSON_CAP, to_json

Scope = Literal["waiting", "live", "ever"]
OnConflict = Literal["existing", "ignore", "replace"]

_BULK = 1000  # jobs in one statement
_BULK_BYTES = 8 * 1024 * 1024  # of payload in one statement: a jsonb array cannot hold more than 256 MB
_LONGEST = timedelta(days=3650)
_LONGEST_TIMEOUT = timedelta(days=7)  # timeout_ms is an integer, and the setting has the same limit
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)  # Python ends in 9999
# Bytes as UTF-8, not characters: an entry of an index may have 2,700 of them, and holds three of these names.
_LIMITS = {"kind": 200, "queue": 200, "tenant": 200, "unique_key": 500, "concurrency_key": 500, "request_id": 200}


def enqueue(
    db: _queue.Db,
    kind: str,
    payload: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    unique_key: str | None = None,
    unique_scope: Scope | None = None,
    on_conflict: OnConflict = "existing",
    concurrency_key: str | None = None,
    max_attempts: int | None = None,
    timeout: timedelta | None = None,
    tenant: str = "",
    snap_id: UUID | str | None = None,
    request_id: str | None = None,
) -> int | None:
    """Adds a job in the transaction of `db` (a SQLAlchemy connection or session, or psycopg's): committed means it
    will run, rolled back means it never was. Returns its id; None where on_conflict="ignore" met a holder."""
    spec = _spec(locals())
    return _queue.enqueue(db, spec)


def enqueue_many(db: _queue.Db, jobs: Iterable[Mapping[str, Any]]) -> list[int | None]:
    """Adds many, each a mapping of enqueue's arguments (`kind`, `payload`, …); returns their ids in order. They are
    checked and sent page by page: when one is refused, earlier pages are in the transaction already."""
    ids: list[int | None] = []
    page: list[dict[str, Any]] = []
    size = 0
    for job in jobs:
        spec = _for_json(_spec(_with_defaults(job)))
        if len(page) == _BULK or (page and size + len(spec["payload"]) > _BULK_BYTES):
            ids += _queue.enqueue_many(db, _as_json(page))
            page, size = [], 0
        page.append(spec)
        size += len(spec["payload"])
    return ids + (_queue.enqueue_many(db, _as_json(page)) if page else [])


_DEFAULTS: dict[str, Any] = {
    "payload": None,
    "queue": None,
    "priority": 0,
    "run_at": None,
    "delay": None,
    "unique_key": None,
    "unique_scope": None,
    "on_conflict": "existing",
    "concurrency_key": None,
    "max_attempts": None,
    "timeout": None,
    "tenant": "",
    "snap_id": None,
    "request_id": None,
}


class Defaults:
    """What a kind without a processor here gets. The runtime sets it from the settings, once, at start."""

    max_attempts = 3


def _with_defaults(job: object) -> dict[str, Any]:
    if not isinstance(job, Mapping):
        raise InvalidJob(f"each job must be a mapping of enqueue's arguments, not {job!r:.100}")
    unknown = job.keys() - _DEFAULTS.keys() - {"kind"}
    if unknown:
        raise InvalidJob(f"unknown arguments: {', '.join(sorted(map(str, unknown)))}")
    return {"kind": None} | _DEFAULTS | dict(job)


def _spec(given: Mapping[str, Any]) -> dict[str, Any]:
    _check(given)
    kind = given["kind"]
    declared = registry.default.get(kind) if kind in registry.default else None
    spec = {name: given[name] for name in _DEFAULTS if name != "timeout"} | {"kind": kind}
    spec["queue"] = given["queue"] or (declared.queue if declared else "default")
    spec["max_attempts"] = given["max_attempts"] or (declared and declared.max_attempts) or Defaults.max_attempts
    spec["payload"] = _payload(given["payload"])
    spec["run_at"] = given["run_at"] and given["run_at"].astimezone(UTC)
    spec["snap_id"] = None if given["snap_id"] is None else str(UUID(str(given["snap_id"])))
    spec["timeout_ms"] = None if given["timeout"] is None else int(given["timeout"].total_seconds() * 1000)
    return spec


def _check(given: Mapping[str, Any]) -> None:
    """Here and not in the database, because an error there would end the caller's transaction."""
    for name, limit in _LIMITS.items():
        value = given[name]
        if value is not None and not _is_storable(value, limit):
            raise InvalidJob(f"{name} must be text of at most {limit} bytes without NUL, not {value!r:.100}")
    if not given["kind"]:
        raise InvalidJob("a job needs a kind")
    if given["tenant"] is None:
        raise InvalidJob("tenant must be text, not None; the house's own is empty")
    if given["queue"] == "":
        raise InvalidJob("queue must not be empty")
    if given["payload"] is not None and not isinstance(given["payload"], Mapping):
        raise InvalidJob(f"the payload must be a JSON object, not {type(given['payload']).__name__}")
    _check_number("priority", given["priority"], -1000, 1000)
    if given["max_attempts"] is not None:
        _check_number("max_attempts", given["max_attempts"], 1, 1000)
    _check_moment("run_at", given["run_at"])
    _check_duration("delay", given["delay"], timedelta(0), _LONGEST)
    _check_duration("timeout", given["timeout"], timedelta(milliseconds=1), _LONGEST_TIMEOUT)
    if given["unique_scope"] not in (None, "waiting", "live", "ever"):
        raise InvalidJob(f"unique_scope must be waiting, live or ever, not {given['unique_scope']!r:.100}")
    if given["unique_scope"] and given["unique_key"] is None:
        raise InvalidJob("unique_scope needs a unique_key")
    if given["on_conflict"] not in ("existing", "ignore", "replace"):
        raise InvalidJob(f"on_conflict must be existing, ignore or replace, not {given['on_conflict']!r:.100}")
    if given["snap_id"] is not None:
        _check_uuid(given["snap_id"])


def _is_storable(value: object, limit: int) -> bool:
    if not isinstance(value, str) or len(value) > limit or "\0" in value:
        return False
    try:
        return len(value.encode()) <= limit
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidJob(f"{name} must be a whole number from {least} to {most}, not {value!r:.100}")


def _check_moment(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime) or value.utcoffset() is None or not _EARLIEST <= value <= _LATEST:
        years = f"between {_EARLIEST.year} and {_LATEST.year}"
        raise InvalidJob(f"{name} must be a datetime with a time zone, {years}, not {value!r:.100}")


def _check_duration(name: str, value: object, least: timedelta, most: timedelta) -> None:
    if value is not None and (not isinstance(value, timedelta) or not least <= value <= most):
        raise InvalidJob(f"{name} must be a timedelta from {least} to {most}, not {value!r:.100}")


def _check_uuid(value: object) -> None:
    try:
        UUID(str(value))
    except ValueError:
        raise InvalidJob(f"snap_id must be a UUID, not {value!r:.100}") from None


def _payload(given: Mapping[str, Any] | None) -> str:
    text = to_json({} if given is None else dict(given))
    if _WITH_EXPONENT.search(text):
        zeros: list[int] = []
        json.loads(text, parse_float=lambda literal: zeros.append(abs(int(literal.lower().partition("e")[2] or 0))))
        if len(text.encode()) + sum(zeros) > JSON_CAP:
            raise InvalidJob(f"the payload's numbers, written out, have more than the {JSON_CAP} bytes allowed")
    return text


# PostgreSQL writes numbers out: 1e300 has 301 digits in jsonb's text, which the table limits.
_WITH_EXPONENT = re.compile(r"[0-9]e[+-][0-9]{2}")


def _for_json(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec for the bulk call: only what is set, dates and durations as PostgreSQL reads them."""
    set_ones = {name: value for name, value in spec.items() if value is not None}
    if "run_at" in set_ones:
        set_ones["run_at"] = spec["run_at"].isoformat()
    if "delay" in set_ones:
        set_ones["delay"] = f"{spec['delay'].total_seconds():.6f} seconds"
    if set_ones["on_conflict"] == "existing":
        del set_ones["on_conflict"]
    return set_ones


def _as_json(page: list[dict[str, Any]]) -> str:
    """The payloads are JSON text already: they are put in as they are, not decoded and encoded again."""
    parts = []
    for spec in page:
        payload = spec.pop("payload")
        rest = json.dumps(spec)[1:]
        parts.append(f'{{"payload":{payload},{rest}')
    return f"[{','.join(parts)}]"
