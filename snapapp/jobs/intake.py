"""`enqueue`: checks what comes in, fills in what the kind's processor declares, and leaves the rest to the queue."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
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
    will run, rolled back means it never was. Returns its id; None where on_conflict="ignore" met a holder.

    InvalidJob leaves that transaction as it is. DuplicateKey (on_conflict="replace" met a holder that waits no more)
    comes from the database, which has aborted it: roll back, or enqueue in a savepoint."""
    given = locals()
    del given["db"]
    return _queue.enqueue(db, _UNSET | _spec(given))


def enqueue_many(db: _queue.Db, jobs: Iterable[Mapping[str, Any]]) -> list[int | None]:
    """Adds many, each a mapping of enqueue's arguments (`kind`, `payload`, …); returns their ids in order. All or
    nothing: when one is refused, or `jobs` itself raises, none of them was added."""
    pages = _pages(_in_order(jobs))
    first_two = list(islice(pages, 2))
    if len(first_two) < 2:  # one statement needs no savepoint to be all or nothing
        return _added(db, first_two)
    with _queue.together(db):
        return _added(db, chain(first_two, pages))


_Page = dict[int, dict[str, Any]]  # place among what was given -> spec


def _added(db: _queue.Db, pages: Iterable[_Page]) -> list[int | None]:
    ids: dict[int, int | None] = {}
    for page in pages:
        ids |= zip(page, _queue.enqueue_many(db, _as_json(page.values())), strict=True)
    return [ids[place] for place in range(len(ids))]


def _in_order(jobs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Those with unique keys last, in the order of the keys: two callers with the same ones, in any order and in
    several statements, then never wait for each other in a circle."""
    keyed = []
    for place, job in enumerate(jobs):
        spec = _for_json(_spec(job))
        if "unique_key" in spec:
            keyed.append((spec["kind"], spec.get("tenant", ""), spec["unique_key"], place, spec))
        else:
            yield place, spec
    for *_, place, spec in sorted(keyed, key=lambda each: each[:4]):
        yield place, spec


def _pages(specs: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[_Page]:
    page: _Page = {}
    size = 0
    for place, spec in specs:
        if len(page) == _BULK or (page and size + len(spec["payload"]) > _BULK_BYTES):
            yield page
            page, size = {}, 0
        page[place] = spec
        size += len(spec["payload"])
    if page:
        yield page


class Defaults:
    """What a kind without a processor here gets. The runtime sets it from the settings, once, at start."""

    max_attempts = 3


def _spec(given: object) -> dict[str, Any]:
    """What was given, checked and in the queue's terms. Here and not in the database, because an error there would
    end the caller's transaction."""
    if not isinstance(given, Mapping):
        raise InvalidJob(f"each job must be a mapping of enqueue's arguments, not {given!r:.100}")
    spec: dict[str, Any] = {}
    for name, value in given.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidJob(f"unknown arguments: {', '.join(sorted(map(str, given.keys() - _CHECKS.keys())))}")
        if value is not None or name in _NEVER_NONE:
            check(name, value)
            spec[name] = value
    kind = spec.get("kind")
    if not kind:
        raise InvalidJob("a job needs a kind")
    if "unique_scope" in spec and "unique_key" not in spec:
        raise InvalidJob("unique_scope needs a unique_key")
    declared = registry.default.get(kind) if kind in registry.default else None
    if "queue" not in spec:
        spec["queue"] = declared.queue if declared else "default"
    if "max_attempts" not in spec:
        spec["max_attempts"] = (declared and declared.max_attempts) or Defaults.max_attempts
    spec["payload"] = _payload(spec["payload"]) if "payload" in spec else "{}"
    if "run_at" in spec:
        spec["run_at"] = spec["run_at"].astimezone(UTC)
    if "snap_id" in spec:
        spec["snap_id"] = str(UUID(str(spec["snap_id"])))
    if "timeout" in spec:
        spec["timeout_ms"] = int(spec.pop("timeout").total_seconds() * 1000)
    return spec


def _check_text(name: str, value: object) -> None:
    limit = _LIMITS[name]
    if not _is_storable(value, limit):
        raise InvalidJob(f"{name} must be text of at most {limit} bytes without NUL, not {value!r:.100}")
    if not value and name in ("kind", "queue"):
        raise InvalidJob("a job needs a kind" if name == "kind" else "queue must not be empty")


def _check_tenant(name: str, value: object) -> None:
    if value is None:
        raise InvalidJob("tenant must be text, not None; the house's own is empty")
    _check_text(name, value)


def _check_payload(_name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise InvalidJob(f"the payload must be a JSON object, not {type(value).__name__}")


def _check_word(name: str, value: object) -> None:
    *others, last = _WORDS[name]
    if value not in _WORDS[name]:
        raise InvalidJob(f"{name} must be {', '.join(others)} or {last}, not {value!r:.100}")


def _is_storable(value: object, limit: int) -> bool:
    if not isinstance(value, str) or len(value) > limit or "\0" in value:
        return False
    try:
        return len(value.encode()) <= limit
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _check_number(name: str, value: object) -> None:
    least, most = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidJob(f"{name} must be a whole number from {least} to {most}, not {value!r:.100}")


def _check_moment(name: str, value: object) -> None:
    if not isinstance(value, datetime) or value.utcoffset() is None or not _EARLIEST <= value <= _LATEST:
        years = f"between {_EARLIEST.year} and {_LATEST.year}"
        raise InvalidJob(f"{name} must be a datetime with a time zone, {years}, not {value!r:.100}")


def _check_duration(name: str, value: object) -> None:
    least, most = _SPANS[name]
    if not isinstance(value, timedelta) or not least <= value <= most:
        raise InvalidJob(f"{name} must be a timedelta from {least} to {most}, not {value!r:.100}")


def _check_uuid(name: str, value: object) -> None:
    try:
        UUID(str(value))
    except ValueError:
        raise InvalidJob(f"{name} must be a UUID, not {value!r:.100}") from None


_RANGES = {"priority": (-1000, 1000), "max_attempts": (1, 1000)}
_SPANS = {"delay": (timedelta(0), _LONGEST), "timeout": (timedelta(milliseconds=1), _LONGEST_TIMEOUT)}
_WORDS = {"unique_scope": ("waiting", "live", "ever"), "on_conflict": ("existing", "ignore", "replace")}
_CHECKS: dict[str, Callable[[str, object], None]] = {
    **dict.fromkeys(_LIMITS, _check_text),
    **dict.fromkeys(_RANGES, _check_number),
    **dict.fromkeys(_SPANS, _check_duration),
    **dict.fromkeys(_WORDS, _check_word),
    "tenant": _check_tenant,
    "payload": _check_payload,
    "run_at": _check_moment,
    "snap_id": _check_uuid,
}
_NEVER_NONE = frozenset({"priority", "on_conflict", "tenant"})
# What the single call tells the database where nothing was given.
_UNSET: dict[str, Any] = dict.fromkeys(_CHECKS.keys() - {"timeout"} | {"timeout_ms"}) | {
    "priority": 0,
    "on_conflict": "existing",
    "tenant": "",
}


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
    """For the bulk call: dates and durations as PostgreSQL reads them."""
    if "run_at" in spec:
        spec["run_at"] = spec["run_at"].isoformat()
    if "delay" in spec:
        spec["delay"] = f"{spec['delay'].total_seconds():.6f} seconds"
    return spec


_encode = json.JSONEncoder().encode


def _as_json(page: Iterable[dict[str, Any]]) -> str:
    """The payloads are JSON text already: they are put in as they are, not decoded and encoded again."""
    parts = []
    for spec in page:
        payload = spec.pop("payload")
        rest = _encode(spec)[1:]
        parts.append(f'{{"payload":{payload},{rest}')
    return f"[{','.join(parts)}]"
