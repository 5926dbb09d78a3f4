"""`enqueue`: checks a job's arguments, fills in what the kind's processor declares, and calls the database's
enqueue_jobs."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeGuard, Unpack
from uuid import UUID

import psycopg

from snapapp.jobs import payloads, registry, tracing
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import JSON_CAP, encode, to_json
from snapapp.jobs.rows import database, lifecycle

if TYPE_CHECKING:  # a worker does not need SQLAlchemy's asyncio part
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    AsyncDb = AsyncConnection | AsyncSession | psycopg.AsyncConnection[Any]

_Spec = dict[str, Any]  # enqueue's arguments as the database takes them
_NumberedSpec = tuple[int, _Spec]  # a spec with its position in the list that the caller gave

Scope = Literal["waiting", "live", "ever"]
UniqueBy = Literal["spec"]
OnConflict = Literal["existing", "ignore", "replace"]
OnParentFailure = Literal["cancel", "run"]

_BULK = 1000  # jobs in one statement
_ENCODED_AT_ONCE = 50  # jobs that one call of the JSON encoder gets
MOST_PARENTS = 10_000  # a child process is sent the results of all parents
_BULK_BYTES = 8 * 1024 * 1024  # of payload in one statement: a jsonb array cannot hold more than 256 MB
_LONGEST = timedelta(days=3650)
_LONGEST_TIMEOUT = timedelta(days=7)  # timeout_ms is an integer, and the setting has the same limit
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)  # Python ends in 9999
# In bytes of UTF-8: an entry of an index may have 2,700 bytes, and it holds up to three of these texts.
_LIMITS = {"kind": 200, "queue": 200, "tenant": 200, "unique_key": 500, "concurrency_key": 500, "request_id": 200}


class Options(TypedDict, total=False):
    """The options of `enqueue` beside kind and payload. None, where it is allowed, means that an option is not
    given."""

    queue: str | None
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    unique_key: str | None
    unique_scope: Scope | None
    unique_by: UniqueBy | None
    on_conflict: OnConflict
    concurrency_key: str | None
    max_attempts: int | None
    timeout: timedelta | None
    tenant: str
    snap_id: UUID | str | None
    request_id: str | None
    after: Sequence[int] | None
    on_parent_failure: OnParentFailure


def enqueue(db: lifecycle.Db, kind: str, payload: object = None, **options: Unpack[Options]) -> int | None:
    """Adds a job in the transaction of `db` (a SQLAlchemy connection or session, or psycopg's): the job runs once the
    caller commits, and is gone if the caller rolls back. Returns the job's id, or None if on_conflict="ignore" and
    another job holds the unique key. The payload is a mapping, or a dataclass or model of the type that the kind's
    processor declares.

    `unique_by="spec"`: kind, payload, tenant and snap together are the unique key; `done_before` returns the result of
    the same work done earlier.

    `after`: ids of jobs that must complete first. If one of them fails or is cancelled, the new job is cancelled,
    unless on_parent_failure="run". See docs/workflows.md.

    InvalidJob is raised before the database is asked, so the transaction can go on. DuplicateKey (on_conflict="replace"
    and the holder of the key no longer waits) and UnknownJob (`after` names a job that does not exist) come from the
    database, which has aborted the transaction by then: roll back, or enqueue in a savepoint."""
    with tracing.span("enqueue", kind):
        return lifecycle.enqueue(db, _single_job_json(kind, payload, options))[0]


def _single_job_json(kind: str, payload: object, options: Options) -> str:
    spec = _checked_spec({"kind": kind, "payload": payload} | options)
    [(_, text)] = _encode_specs([spec | tracing.header()])
    return f"[{text}]"


async def enqueue_async(db: "AsyncDb", kind: str, payload: object = None, **options: Unpack[Options]) -> int | None:
    """Like `enqueue`, for asyncio: SQLAlchemy's AsyncConnection or AsyncSession (on psycopg), or psycopg's
    AsyncConnection. To add many jobs: `await session.run_sync(enqueue_many, jobs)`."""
    if not isinstance(db, psycopg.AsyncConnection):
        return await db.run_sync(enqueue, kind, payload, **options)
    with tracing.span("enqueue", kind):
        return (await lifecycle.enqueue_async(db, _single_job_json(kind, payload, options)))[0]


def enqueue_many(db: lifecycle.Db, jobs: Iterable[Mapping[str, Any]]) -> list[int | None]:
    """Adds many jobs, each a mapping of enqueue's arguments (`kind`, `payload`, …); returns their ids in order. If one
    job is refused, or `jobs` itself raises, none of them is added."""
    with tracing.span("enqueue", "many"):
        pages = _pages(_by_unique_key(db, jobs))
        first_two = list(islice(pages, 2))
        if len(first_two) < 2:  # a single statement adds all or nothing without a savepoint
            return _insert_pages(db, first_two)
        with database.together(db):
            return _insert_pages(db, chain(first_two, pages))


class _Page(NamedTuple):
    """The jobs that one statement adds."""

    places: list[int]  # their positions in the list that the caller gave
    texts: list[str]  # their specs as JSON


def _insert_pages(db: lifecycle.Db, pages: Iterable[_Page]) -> list[int | None]:
    ids: dict[int, int | None] = {}
    for page in pages:
        ids |= zip(page.places, lifecycle.enqueue(db, f"[{','.join(page.texts)}]"), strict=True)
    return [ids[place] for place in range(len(ids))]


def _by_unique_key(db: lifecycle.Db, jobs: Iterable[Mapping[str, Any]]) -> Iterator[_NumberedSpec]:
    """Yields the jobs with unique keys last, sorted by key: two callers that add the same keys then lock them in the
    same order, and cannot deadlock."""
    keyed = []
    specs: Iterator[_Spec] = map(_checked_spec, jobs)
    if traced := tracing.header():
        specs = (spec | traced for spec in specs)
    for placed in enumerate(specs):
        if "unique_key" in placed[1] or "unique_by" in placed[1]:
            keyed.append(placed)
        else:
            yield placed
    if len(keyed) > 1:
        _hash_spec_keys(db, [spec for _, spec in keyed if "unique_by" in spec])
    yield from sorted(keyed, key=lambda placed: _unique_key_order(*placed))


def _hash_spec_keys(db: lifecycle.Db, specs: list[_Spec]) -> None:
    """Replaces `unique_by` by the key that the database computes: the jobs are sorted by their keys, and only the
    database can hash a spec."""
    for page in _pages(iter(enumerate(specs))):
        for place, key in zip(page.places, lifecycle.spec_keys(db, f"[{','.join(page.texts)}]"), strict=True):
            del specs[place]["unique_by"]
            specs[place]["unique_key"] = key


def _unique_key_order(place: int, spec: _Spec) -> tuple[str, str, str, int]:
    return spec["kind"], spec.get("tenant", ""), spec.get("unique_key", ""), place


@dataclass(frozen=True, slots=True)
class Done:
    """A job that completed the same work earlier."""

    id: int
    result: Any
    finished_at: datetime


def done_before(
    db: lifecycle.Db, kind: str, payload: object = None, *, tenant: str = "", snap_id: UUID | str | None = None
) -> Done | None:
    """The newest kept job with unique_by="spec" that completed the same work, and its result; None: there is none."""
    given = {"kind": kind, "payload": payload, "tenant": tenant, "snap_id": snap_id, "unique_by": "spec"}
    [(_, text)] = _encode_specs([_checked_spec(given)])
    row = lifecycle.done_before(db, text)
    return Done(row[0], json.loads(row[1] or "null"), row[2]) if row else None


def _pages(jobs: Iterator[_NumberedSpec]) -> Iterator[_Page]:
    page = _Page([], [])
    size = 0
    while group := list(islice(jobs, _ENCODED_AT_ONCE)):
        places, specs = zip(*group, strict=True)
        for count, text in _encode_specs(specs):
            if page.places and (len(page.places) + count > _BULK or size + len(text) > _BULK_BYTES):
                yield page
                page, size = _Page([], []), 0
            page.places.extend(places[:count])
            page.texts.append(text)
            places, size = places[count:], size + len(text)
    if page.places:
        yield page


class Defaults:
    """The defaults of a kind whose processor declares none, until a worker has declared the kind in the database. The
    runtime sets them from the settings once, at start."""

    max_attempts = 3


def _checked_spec(given: object) -> _Spec:
    """Checks a job's arguments and converts them to what enqueue_jobs takes. This happens before the database is asked,
    because an error there would abort the caller's transaction."""
    spec = _checked(given)
    _fill_in_declared(spec)
    _convert(spec)
    return spec


def _checked(given: object) -> _Spec:
    if not _is_mapping(given):
        raise InvalidJob(f"each job must be a mapping of enqueue's arguments, not {given!r:.100}")
    spec: _Spec = {}
    for name, value in given.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidJob(f"unknown arguments: {', '.join(sorted(map(str, given.keys() - _CHECKS.keys())))}")
        if value is not None or name in _NEVER_NONE:
            check(name, value)
            spec[name] = value
    if not spec.get("kind"):
        raise InvalidJob("a job needs a kind")
    if "unique_by" in spec and "unique_key" in spec:
        raise InvalidJob("a job has a unique_key or unique_by, not both")
    if "unique_scope" in spec and "unique_key" not in spec and "unique_by" not in spec:
        raise InvalidJob("unique_scope needs a unique_key or unique_by")
    if spec.get("after") and spec.get("on_conflict") == "replace":
        raise InvalidJob("a job with parents cannot replace another")
    return spec


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return type(value) is dict or isinstance(value, Mapping)  # nearly all are dicts, and the second test takes longer


def _fill_in_declared(spec: _Spec) -> None:
    """What the kind's processor declares, where this process knows it; the payload must be of its type."""
    kind = spec["kind"]
    declared = registry.default.get(kind) if kind in registry.default else None
    if declared is not None:
        spec.setdefault("queue", declared.queue)
    if declared is not None and declared.max_attempts is not None:
        spec.setdefault("max_attempts", declared.max_attempts)
    else:
        # The database knows what is missing from the workers that declared the kind: their settings may differ from
        # those of this process.
        spec["default_attempts"] = Defaults.max_attempts
    wanted = None if declared is None else payloads.wanted_by(declared.function)
    if wanted is not None or type(spec.get("payload", {})) is not dict:
        spec["payload"] = payloads.plain(spec.get("payload", {}), wanted)


def _convert(spec: _Spec) -> None:
    if "run_at" in spec:
        spec["run_at"] = spec["run_at"].astimezone(UTC).isoformat()
    if "delay" in spec:
        spec["delay"] = f"{spec['delay'].total_seconds():.6f} seconds"
    if "after" in spec:
        spec["after"] = list(spec["after"])
    if "snap_id" in spec:
        spec["snap_id"] = str(UUID(str(spec["snap_id"])))
    if "timeout" in spec:
        spec["timeout_ms"] = int(spec.pop("timeout").total_seconds() * 1000)


def _encode_specs(specs: Sequence[_Spec]) -> Iterator[tuple[int, str]]:
    """Yields JSON without brackets, each with the number of specs in it. All specs are encoded in one call, which takes
    half the time, unless one of them needs the checks of `_encode_one`."""
    try:
        text = encode(specs)[1:-1]
        is_plain = len(text.encode()) <= JSON_CAP and not _is_doubtful(text)
    except (TypeError, ValueError, RecursionError):
        is_plain = False
    if is_plain:
        yield len(specs), text
    else:
        yield from ((1, _encode_one(spec)) for spec in specs)


def _is_doubtful(text: str) -> bool:
    """Whether the text may hold a NUL or a number with an exponent. The substring tests come first, because the regular
    expression over the whole text takes longer than encoding it."""
    return "\\u0000" in text or (("e+" in text or "e-" in text) and _WITH_EXPONENT.search(text) is not None)


def _encode_one(spec: _Spec) -> str:
    """The JSON of one spec; InvalidJob says why PostgreSQL could not keep its payload."""
    text = to_json(spec.get("payload", {}))
    if _WITH_EXPONENT.search(text):
        zeros: list[int] = []
        json.loads(text, parse_float=lambda literal: zeros.append(abs(int(literal.lower().partition("e")[2] or 0))))
        if len(text.encode()) + sum(zeros) > JSON_CAP:
            raise InvalidJob(f"the payload's numbers, written out, have more than the {JSON_CAP} bytes allowed")
    return encode(spec)


# jsonb writes numbers without exponents: 1e300 becomes 301 digits, and the table limits the payload's length as text.
_WITH_EXPONENT = re.compile(r"[0-9]e[+-][0-9]{2}")


def _check_text(name: str, value: object) -> None:
    limit = _LIMITS[name]
    if not _is_storable(value, limit):
        raise InvalidJob(f"{name} must be text of at most {limit} bytes without NUL, not {value!r:.100}")
    if value == "" and name == "queue":
        raise InvalidJob("queue must not be empty")


def _check_tenant(name: str, value: object) -> None:
    if value is None:
        raise InvalidJob("tenant must be text, not None; a job of no tenant has an empty one")
    _check_text(name, value)


def _check_payload(_name: str, value: object) -> None:
    if not _is_mapping(value) and not payloads.is_typed(value):
        raise InvalidJob(f"the payload must be a JSON object, not {type(value).__name__}")


def _check_word(name: str, value: object) -> None:
    *others, last = _WORDS[name]
    if value not in _WORDS[name]:
        among = f"{', '.join(others)} or {last}" if others else last
        raise InvalidJob(f"{name} must be {among}, not {value!r:.100}")


def _is_storable(value: object, limit: int) -> bool:
    if not isinstance(value, str) or len(value) > limit or "\0" in value:
        return False
    if value.isascii():
        return True
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


def _check_ids(name: str, value: object) -> None:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidJob(f"{name} must be a list of ids of jobs, not {value!r:.100}")
    if len(value) > MOST_PARENTS:
        raise InvalidJob(f"{name} may have {MOST_PARENTS:,} ids of jobs at most, not {len(value):,}")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 < one < 2**63:
            raise InvalidJob(f"{name} must be a list of ids of jobs, and {one!r:.100} is none")


def _check_uuid(name: str, value: object) -> None:
    try:
        UUID(str(value))
    except ValueError:
        raise InvalidJob(f"{name} must be a UUID, not {value!r:.100}") from None


_RANGES = {"priority": (-1000, 1000), "max_attempts": (1, 1000)}
_SPANS = {"delay": (timedelta(0), _LONGEST), "timeout": (timedelta(milliseconds=1), _LONGEST_TIMEOUT)}
_WORDS = {
    "unique_scope": ("waiting", "live", "ever"),
    "unique_by": ("spec",),
    "on_conflict": ("existing", "ignore", "replace"),
    "on_parent_failure": ("cancel", "run"),
}
_CHECKS: dict[str, Callable[[str, object], None]] = {
    **dict.fromkeys(_LIMITS, _check_text),
    **dict.fromkeys(_RANGES, _check_number),
    **dict.fromkeys(_SPANS, _check_duration),
    **dict.fromkeys(_WORDS, _check_word),
    "tenant": _check_tenant,
    "payload": _check_payload,
    "run_at": _check_moment,
    "snap_id": _check_uuid,
    "after": _check_ids,
}
_NEVER_NONE = frozenset({"priority", "on_conflict", "on_parent_failure", "tenant"})
