"""Cleaning up: what killed children left on this disk, what nobody refers to in storage, what is too old to be kept."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from snapapp import snaps, storage, tenants, videos
from snapapp.db import scope
from snapapp.jobs import Job, scheduled
from snapapp.processing import scratch, surroundings
from snapapp.storage import Storage, keys
from snapapp.storage.sweep import Missing, Orphan, Published, compared

KIND = "storage.sweep"
_YOUNG = timedelta(days=1)  # longer than any attempt may last: what is being made now is nobody's yet


@scheduled(every=timedelta(minutes=1), scope="process")
def sweep_scratch() -> None:
    """A child that is killed leaves its folder; the next job removes it too, but there may be none for long."""
    scratch.sweep(surroundings.settings().data_dir / "scratch")


@scheduled(cron="30 3 * * *", name=KIND)
def sweep_storage(job: Job) -> dict[str, Any]:
    """Compares rows and objects, both ways, after what is too old has gone."""
    now, store = datetime.now(UTC), storage.from_settings(surroundings.settings())
    retention = surroundings.settings().media_retention
    with job.connection() as db:
        for code in _tenants(db):
            snaps.forget_keys(db, code)
            if retention:
                snaps.expire(db, code, now - retention)
    with job.connection() as db:
        published = sorted(_published(db), key=lambda each: each.prefix)
        derived = set(_derived(db))
    counts = Counter(
        _settled(found, derived, store, job) for found in compared(published, store.listed(), before=now - _YOUNG)
    )
    return {"deleted": counts["deleted"], "missing": counts["missing"], "uploads": store.forget_uploads(now - _YOUNG)}


def _settled(found: Orphan | Missing, derived: Collection[str], store: Storage, job: Job) -> str:
    match found:
        case Orphan(stored) if f"{stored.key.rpartition('/')[0]}/" in derived:
            return "kept"
        case Orphan(stored):
            store.delete(stored.key)
            return "deleted"
        case Missing(prefix, names):
            job.log(f"{prefix} should hold {', '.join(names) or 'something'}, and does not", level="ERROR")
            return "missing"


def _published(db: Connection) -> Iterator[Published]:
    for code in _tenants(db):
        for prefix, names in snaps.published(db, code):
            yield Published(prefix, names)
        for _id, key in videos.stored(db, code):
            if key:
                folder, _, name = key.rpartition("/")
                yield Published(f"{folder}/", frozenset([name]))


def _derived(db: Connection) -> Iterator[str]:
    """Where stills and previews of videos lie whose bytes are elsewhere; there may be none."""
    for code in _tenants(db):
        for video_id, key in videos.stored(db, code):
            if not key:
                yield keys.of_video(code, video_id)


def _tenants(db: Connection) -> Iterator[str]:
    """Each in its scope, one after the other."""
    for tenant in tenants.every(db):
        with scope(db, tenant.code):
            yield tenant.code
