"""`enqueue`: checks what comes in, fills in what the kind's processor declares, and leaves the rest to the queue."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from snapapp.jobs import queue as _queue
from snapapp.jobs import registry
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import to_json

Scope = Literal["waiting", "live", "ever"]
OnConflict = Literal["existing", "ignore", "replace"]

_BULK = 1000  # jobs in one statement
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
    """Adds many, each a mapping of enqueue's arguments (`kind`, `payload`, …); returns their ids in order."""
    ids: list[int | None] = []
    page: list[dict[str, Any]] = []
    for job in jobs:
        page.append(_for_json(_spec(dict(_DEFAULTS, **job))))
        if len(page) == _BULK:
            ids += _queue.enqueue_many(db, _as_json(page))
            page = []
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


def _spec(given: dict[str, Any]) -> dict[str, Any]:
    unknown = given.keys() - _DEFAULTS.keys() - {"kind", "db"}
    if unknown or "kind" not in given:
        raise InvalidJob(f"unknown arguments: {', '.join(sorted(unknown))}" if unknown else "a job needs a kind")
    _check(given)
    kind = given["kind"]
    declared = registry.default.get(kind) if kind in registry.default else None
    spec = {name: given[name] for name in _DEFAULTS if name != "timeout"} | {"kind": kind}
    spec["queue"] = given["queue"] or (declared.queue if declared else "default")
    spec["max_attempts"] = given["max_attempts"] or (declared and declared.max_attempts) or Defaults.max_attempts
    spec["payload"] = to_json({} if given["payload"] is None else given["payload"])
    spec["timeout_ms"] = None if given["timeout"] is None else int(given["timeout"].total_seconds() * 1000)
    return spec


def _check(given: Mapping[str, Any]) -> None:
    """Here and not in the database, because an error there would end the caller's transaction."""
    for name, limit in _LIMITS.items():
        value = given[name]
        if value is not None and not _is_storable(value, limit):
            raise InvalidJob(f"{name} must be text of at most {limit} characters without NUL, not {value!r:.100}")
    if not given["kind"]:
        raise InvalidJob("a job needs a kind")
    if given["queue"] == "":
        raise InvalidJob("queue must not be empty")
    if given["payload"] is not None and not isinstance(given["payload"], Mapping):
        raise InvalidJob(f"the payload must be a JSON object, not {type(given['payload']).__name__}")
    _check_number("priority", given["priority"], -1000, 1000)
    if given["max_attempts"] is not None:
        _check_number("max_attempts", given["max_attempts"], 1, 1000)
    if given["run_at"] is not None and (not isinstance(given["run_at"], datetime) or given["run_at"].tzinfo is None):
        raise InvalidJob(f"run_at must be a datetime with a time zone, not {given['run_at']!r:.100}")
    _check_duration("delay", given["delay"], timedelta(0))
    _check_duration("timeout", given["timeout"], timedelta(milliseconds=1))
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
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidJob(f"{name} must be a whole number from {least} to {most}, not {value!r:.100}")


def _check_duration(name: str, value: object, least: timedelta) -> None:
    if value is not None and (not isinstance(value, timedelta) or not least <= value <= timedelta(days=3650)):
        raise InvalidJob(f"{name} must be a timedelta from {least} to ten years, not {value!r:.100}")


def _check_uuid(value: object) -> None:
    try:
        UUID(str(value))
    except ValueError:
        raise InvalidJob(f"snap_id must be a UUID, not {value!r:.100}") from None


def _for_json(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec for the bulk call: only what is set, dates and durations as PostgreSQL reads them."""
    set_ones = {name: value for name, value in spec.items() if value is not None}
    if "run_at" in set_ones:
        set_ones["run_at"] = spec["run_at"].astimezone(UTC).isoformat()
    if "delay" in set_ones:
        set_ones["delay"] = f"{spec['delay'].total_seconds():.6f} seconds"
    if "snap_id" in set_ones:
        set_ones["snap_id"] = str(spec["snap_id"])
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
