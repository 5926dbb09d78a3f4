"""How much storage a tenant uses, and how much it may use. Uploads and the evidence of snaps count. Stills and copies
for browsers do not, because they are removed after a month and made again on request."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from snapapp.domain import turns
from snapapp.domain.tables import Snap, Video
from snapapp.errors import StorageUsedUp

MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StorageUse:
    video_bytes: int
    snap_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.video_bytes + self.snap_bytes


def of(db: Session, tenant: str) -> StorageUse:
    uploads = select(func.sum(Video.size_bytes)).where(Video.tenant == tenant, Video.storage_key.is_not(None))
    evidence = select(func.sum(Snap.media_bytes)).where(Snap.tenant == tenant)
    return StorageUse(int(db.scalar(uploads) or 0), int(db.scalar(evidence) or 0))


def require(db: Session, tenant: str, max_mb: int | None, wanted_bytes: int = 0) -> None:
    if max_mb is not None and of(db, tenant).used_bytes + wanted_bytes > max_mb * MB:
        raise StorageUsedUp(max_mb)


def take_turns(db: Session, tenant: str) -> None:
    """Makes other uploads of the tenant wait until this transaction ends. Two uploads may fit one by one but not
    together, so the second must see the first."""
    turns.take(db, tenant, "tenant storage")
