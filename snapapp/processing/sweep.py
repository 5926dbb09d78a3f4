"""Cleans the storage up: objects that no row refers to, and files that are older than they are kept."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from snapapp import storage
from snapapp.domain import idempotency, snaps, tenants, videos
from snapapp.domain.tables import Snap, Video
from snapapp.jobs import Job, Permanent
from snapapp.postgres.database import scope, session
from snapapp.processing import child_settings
from snapapp.storage import Storage, Stored, keys
from snapapp.storage.sweep import Published, compared

_YOUNG = timedelta(days=1)  # longer than any attempt lasts: files in the making have no row yet
_REPEATABLE = timedelta(days=30)  # for stills and previews
_FEW = 200  # objects: some fifteen snaps
_PAGE, _EXPIRED_AT_ONCE = 500, 50

_Read = Callable[[Session, str, UUID, int], list[tuple[UUID, str, frozenset[str]]]]


def forget(job: Job) -> dict[str, int]:
    """Deletes the files of a deleted snap or video, unless an import has brought it again. The sweep would find them
    too, but it refuses to delete when they are many, because they could belong to another database."""
    match job.payload:
        case {"snapId": snap_id}:
            prefix, its_row = keys.of_snap(UUID(snap_id)), select(Snap.id).where(Snap.id == UUID(snap_id))
        case {"videoId": video_id}:
            prefix = keys.of_video(job.tenant, UUID(video_id))
            its_row = select(Video.id).where(Video.id == UUID(video_id))
        case _:
            raise Permanent("It names neither a snap nor a video")
    with job.connection() as db, scope(db, job.tenant) as as_tenant:
        if as_tenant.scalar(its_row):
            return {"deleted": 0}
    store = storage.from_settings(child_settings.settings())
    _require_own(job, store)
    return {"deleted": store.delete_prefix(prefix)}


def sweep_storage(job: Job) -> dict[str, Any]:
    """Deletes files past their retention, then compares rows and objects and deletes the orphans. No transaction is
    open while the storage is asked."""
    now, store = _now(job), storage.from_settings(child_settings.settings())
    is_forced = bool(job.payload.get("anyway"))
    _require_own(job, store, take=is_forced)
    with job.connection() as db:
        codes = [tenant.code for tenant in tenants.every(session(db))]
    deleted = sum(_delete_expired(job, code, store, now) for code in codes)
    comparison = _compare(job, codes, store, now)
    if not is_forced:
        _refuse_if_strange(comparison, of_our_snaps=_of_our_snaps(job, codes, comparison.orphans))
    for batch in chain(
        _pages(comparison.too_old), (_still_without_row(job, codes, page) for page in _pages(comparison.orphans))
    ):
        for key in batch:
            store.delete(key)
        deleted += len(batch)
    return {"deleted": deleted, "missing": comparison.missing, "uploads": store.forget_uploads(now - _YOUNG)}


def _now(job: Job) -> datetime:
    """The earlier one of the times of the database, which dates rows, and of this host, which may date files: where a
    clock is wrong, nothing is deleted too early."""
    with job.connection() as db:
        database_now: datetime = db.execute(select(func.clock_timestamp())).scalar_one()
    return min(datetime.now(UTC), database_now)


_DATABASE = (
    "SELECT system_identifier || '/' || oid FROM pg_control_system(), pg_database WHERE datname = current_database()"
)


def _require_own(job: Job, store: Storage, *, take: bool = False) -> None:
    """Refuses to delete from the storage of another database. A copy of a database, made for a trial, does not know the
    rows that came since, and would delete their files from the storage that it shares."""
    with job.connection() as db:
        ours = str(db.execute(text(_DATABASE)).scalar_one())
    owner = _owner(store)
    if owner not in (None, ours) and not take:
        raise Permanent(
            f"Nothing was deleted: the storage is that of the database {owner}, and this is {ours}. A copy of a "
            "database needs a storage of its own. If the other one is used no more, as after an upgrade of PostgreSQL: "
            """snapapp jobs enqueue storage.sweep '{"anyway": true}'"""
        )
    if owner != ours:
        store.put(keys.OWNER, ours.encode())


def _owner(store: Storage) -> str | None:
    """None: no sweep has been here yet."""
    try:
        with store.open(keys.OWNER) as file:
            return file.read().decode()
    except storage.NotStored:
        return None


def _delete_expired(job: Job, code: str, store: Storage, now: datetime) -> int:
    """Deletes the files of snaps that are past the retention; returns how many. This comes before the comparison, so
    that these files do not count as objects without a row."""
    kept_for, deleted = child_settings.settings().media_retention, 0
    with job.connection() as db, scope(db, code) as as_tenant:
        idempotency.forget_keys(as_tenant, code)
    while kept_for:
        with job.connection() as db, scope(db, code) as as_tenant:
            prefixes = snaps.expire(as_tenant, code, now - kept_for, _EXPIRED_AT_ONCE)
        if not prefixes:
            break
        deleted += sum(map(store.delete_prefix, prefixes))
    return deleted


# --- compared ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Comparison:
    objects: int = 0  # objects that a row should name
    rows: int = 0  # rows that name objects
    orphans: list[str] = field(default_factory=list)
    too_old: list[str] = field(default_factory=list)  # stills, previews and frames of requests, which no row names
    missing: int = 0


def _compare(job: Job, codes: Sequence[str], store: Storage, now: datetime) -> _Comparison:
    comparison = _Comparison()
    # other folders of the bucket may belong to other programs
    stored = chain.from_iterable(map(store.listed, keys.FOLDERS))
    rows, objects = _count_rows(comparison, _published(job, codes)), _with_rows_due(comparison, stored, now)
    for each in compared(rows, objects, before=now - _YOUNG):
        if isinstance(each, Stored):
            comparison.orphans.append(each.key)
            continue
        comparison.missing += 1
        job.log(f"{each.prefix} should hold {', '.join(each.names) or 'something'}, and does not", level="ERROR")
    return comparison


def _count_rows(comparison: _Comparison, published: Iterable[Published]) -> Iterator[Published]:
    for each in published:
        comparison.rows += 1
        yield each


def _with_rows_due(comparison: _Comparison, stored: Iterable[Stored], now: datetime) -> Iterator[Stored]:
    for each in stored:
        kept_for = _kept_for(each.key)
        if kept_for is None:
            comparison.objects += 1
            yield each
        elif each.modified < now - kept_for:
            comparison.too_old.append(each.key)


def _kept_for(key: str) -> timedelta | None:
    """How long an object of a kind that no row names is kept; None for an object that lasts as long as its row."""
    if keys.is_of_request(key):
        return _YOUNG
    return _REPEATABLE if keys.is_repeatable(key) else None


def _published(job: Job, codes: Iterable[str]) -> Iterator[Published]:
    """All rows that name files, in the order of their prefixes, with one page of each tenant and table in memory."""
    readers: list[_Read] = [snaps.published, videos.published]
    return heapq.merge(*(_in_pages(job, code, read) for code in codes for read in readers), key=lambda row: row.prefix)


def _in_pages(job: Job, code: str, read: _Read) -> Iterator[Published]:
    """A tenant's rows, page by page in the order of ids, which is also the order of the prefixes."""
    after = UUID(int=0)
    while True:
        with job.connection() as db, scope(db, code) as as_tenant:
            page = read(as_tenant, code, after, _PAGE)
        yield from (Published(prefix, names) for _, prefix, names in page)
        if len(page) < _PAGE:
            return
        after = page[-1][0]


# --- what is deleted --------------------------------------------------------------------------------------------


def _refuse_if_strange(comparison: _Comparison, *, of_our_snaps: int) -> None:
    """Refuses to delete many objects without a row: they must belong to another database, or their rows are not
    restored yet. Orphans of snaps that have a row are ours, however many a crash has left."""
    orphans, objects = len(comparison.orphans) - of_our_snaps, comparison.objects - of_our_snaps
    is_much = orphans > _FEW and orphans * 5 > objects
    if is_much or (objects > _FEW and not comparison.rows):
        raise Permanent(
            f"Nothing was deleted: no row names {orphans} of the {objects} objects that "
            f"lie there, and {comparison.rows} prefixes are named. Perhaps another database uses this storage, or a "
            """restore is not done. If they may go: snapapp jobs enqueue storage.sweep '{"anyway": true}'"""
        )


def _of_our_snaps(job: Job, codes: Iterable[str], orphans: list[str]) -> int:
    """How many of the orphans are files of snaps that have a row: of a killed attempt, or of a snap past its retention
    whose files were being deleted when the sweep was killed."""
    ours = 0
    for page in _pages(orphans):
        of = [snap_id for key in page if (snap_id := keys.snap_of(key))]
        with job.connection() as db:
            for code in codes:
                with scope(db, code) as as_tenant:
                    existing = snaps.existing(as_tenant, code, set(of))
                ours += sum(snap_id in existing for snap_id in of)
    return ours


def _still_without_row(job: Job, codes: Iterable[str], orphans: list[str]) -> list[str]:
    """The orphans that still have no row. The rows are asked again, because they may have changed since they were
    read."""
    folders = {keys.folder_of(key) for key in orphans}
    with_row: set[str] = set()
    with job.connection() as db:
        for code in codes:
            with scope(db, code) as as_tenant:
                with_row |= snaps.named(as_tenant, code, folders) | videos.named(as_tenant, code, orphans)
    return [key for key in orphans if not {key, keys.folder_of(key)} & with_row]


def _pages(key_list: list[str]) -> Iterator[list[str]]:
    return (key_list[start : start + _PAGE] for start in range(0, len(key_list), _PAGE))
