"""Cleaning up: what killed children left on this disk, what nobody refers to in storage, what is too old to be kept."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from snapapp import storage
from snapapp.domain import idempotency, snaps, tenants, videos
from snapapp.jobs import Job, Permanent
from snapapp.postgres.database import scope, session
from snapapp.processing import child_settings
from snapapp.storage import Storage, Stored, keys
from snapapp.storage.sweep import Orphan, Published, compared

_YOUNG = timedelta(days=1)  # longer than any attempt may last: what is being made now is nobody's yet
_REPEATABLE = timedelta(days=30)  # for stills and previews
_FEW = 200  # objects: some fifteen snaps
_PAGE, _EXPIRED_AT_ONCE = 500, 50

_Read = Callable[[Session, str, UUID, int], list[tuple[UUID, str, frozenset[str]]]]


def forget(job: Job) -> dict[str, int]:
    """The files of a snap or a video that somebody has deleted. The sweep would find them as well, and could not tell
    many of them from another database's."""
    match job.payload:
        case {"snapId": snap_id}:
            prefix = keys.of_snap(UUID(snap_id))
        case {"videoId": video_id}:
            prefix = keys.of_video(job.tenant, UUID(video_id))
        case _:
            raise Permanent("It names neither a snap nor a video")
    return {"deleted": storage.from_settings(child_settings.settings()).delete_prefix(prefix)}


def sweep_storage(job: Job) -> dict[str, Any]:
    """Compares rows and objects, both ways, after what is too old has gone. No transaction waits for the storage."""
    now, store = datetime.now(UTC), storage.from_settings(child_settings.settings())
    with job.connection() as db:
        codes = [tenant.code for tenant in tenants.every(session(db))]
    deleted = sum(_expired(job, code, store, now) for code in codes)
    found = _compared(job, codes, store, now)
    if not job.payload.get("anyway"):
        _refuse_if_strange(found)
    for some in chain(_pages(found.too_old), (_still_nobodys(job, codes, page) for page in _pages(found.orphans))):
        for key in some:
            store.delete(key)
        deleted += len(some)
    return {"deleted": deleted, "missing": found.missing, "uploads": store.forget_uploads(now - _YOUNG)}


def _expired(job: Job, code: str, store: Storage, now: datetime) -> int:
    """Deletes the files of snaps that are past the retention. It comes before the comparison, so that these do not
    count as objects without a row."""
    kept_for, deleted = child_settings.settings().media_retention, 0
    with job.connection() as db, scope(db, code) as own:
        idempotency.forget_keys(own, code)
    while kept_for:
        with job.connection() as db, scope(db, code) as own:
            prefixes = snaps.expire(own, code, now - kept_for, _EXPIRED_AT_ONCE)
        if not prefixes:
            break
        deleted += sum(map(store.delete_prefix, prefixes))
    return deleted


# --- compared ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    objects: int = 0  # that a row should name
    rows: int = 0  # that name some
    orphans: list[str] = field(default_factory=list)
    too_old: list[str] = field(default_factory=list)  # made for whoever asked, and never named by a row
    missing: int = 0


def _compared(job: Job, codes: Sequence[str], store: Storage, now: datetime) -> _Found:
    found = _Found()
    stored = chain.from_iterable(map(store.listed, keys.FOLDERS))  # the rest of a bucket may be anybody's
    rows, objects = _counted(found, _published(job, codes)), _lasting(found, stored, now)
    for each in compared(rows, objects, before=now - _YOUNG):
        if isinstance(each, Orphan):
            found.orphans.append(each.stored.key)
            continue
        found.missing += 1
        job.log(f"{each.prefix} should hold {', '.join(each.names) or 'something'}, and does not", level="ERROR")
    return found


def _counted(found: _Found, published: Iterable[Published]) -> Iterator[Published]:
    for each in published:
        found.rows += 1
        yield each


def _lasting(found: _Found, stored: Iterable[Stored], now: datetime) -> Iterator[Stored]:
    for each in stored:
        kept_for = _kept_for(each.key)
        if kept_for is None:
            found.objects += 1
            yield each
        elif each.modified < now - kept_for:
            found.too_old.append(each.key)


def _kept_for(key: str) -> timedelta | None:
    """How long an object is kept that no row names; None for what lasts as long as its row."""
    if keys.is_of_request(key):
        return _YOUNG
    return _REPEATABLE if keys.is_repeatable(key) else None


def _published(job: Job, codes: Iterable[str]) -> Iterator[Published]:
    """All rows that name files, in the order of their prefixes, with one page of each tenant in memory."""
    readers: list[_Read] = [snaps.published, videos.published]
    return heapq.merge(*(_in_pages(job, code, read) for code in codes for read in readers), key=lambda row: row.prefix)


def _in_pages(job: Job, code: str, read: _Read) -> Iterator[Published]:
    """Page by page in the order of ids, which is that of the prefixes."""
    after = UUID(int=0)
    while True:
        with job.connection() as db, scope(db, code) as own:
            page = read(own, code, after, _PAGE)
        yield from (Published(prefix, names) for _, prefix, names in page)
        if len(page) < _PAGE:
            return
        after = page[-1][0]


# --- what is deleted --------------------------------------------------------------------------------------------


def _refuse_if_strange(found: _Found) -> None:
    """A few objects without a row are what crashes leave; many are another's, or rows that are not back yet."""
    is_much = len(found.orphans) > _FEW and len(found.orphans) * 5 > found.objects
    if is_much or (found.objects > _FEW and not found.rows):
        raise Permanent(
            f"Nothing was deleted: no row names {len(found.orphans)} of the {found.objects} objects that lie there, "
            f"and {found.rows} prefixes are named. Perhaps another database uses this storage, or a restore is not "
            """done. If they may go: snapapp jobs enqueue storage.sweep '{"anyway": true}'"""
        )


def _still_nobodys(job: Job, codes: Iterable[str], orphans: list[str]) -> list[str]:
    """The rows are asked again: they were read while the house went on."""
    folders = {_folder(key) for key in orphans}
    named: set[str] = set()
    with job.connection() as db:
        for code in codes:
            with scope(db, code) as own:
                named |= snaps.named(own, code, folders) | videos.named(own, code, orphans)
    return [key for key in orphans if not {key, _folder(key)} & named]


def _folder(key: str) -> str:
    return f"{key.rpartition('/')[0]}/"


def _pages(found: list[str]) -> Iterator[list[str]]:
    return (found[start : start + _PAGE] for start in range(0, len(found), _PAGE))
