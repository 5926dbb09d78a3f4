"""Videos: the sources of snaps, known by URL or uploaded. A tenant has one for each URL and for the same bytes."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from snapapp import checks, listing
from snapapp.errors import Invalid, VideoNotFound
from snapapp.listing import FIRST, Order, Page, Window

URL_LONGEST = 4096
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Video:
    id: UUID
    url: str | None
    storage_key: str | None
    file_name: str | None
    size_bytes: int | None
    sha256: str | None  # in hex
    content_type: str | None
    probe: dict[str, Any] | None
    created_at: datetime

    @property
    def is_upload(self) -> bool:
        return self.storage_key is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Bytes that lie in storage and belong to no video yet."""

    id: UUID
    storage_key: str
    size_bytes: int
    sha256: str  # in hex
    file_name: str | None = None
    content_type: str | None = None

    def __post_init__(self) -> None:
        checks.insist(
            {
                "storageKey": checks.text(self.storage_key, 1000),
                "sizeBytes": checks.whole(self.size_bytes, 0, _LARGEST),
                "sha256": None if re.fullmatch("[0-9a-f]{64}", self.sha256) else "must be 64 hex digits",
                "fileName": None if self.file_name is None else checks.text(self.file_name, 500),
                "contentType": None if self.content_type is None else checks.text(self.content_type, 200),
            }
        )


_READ = """
SELECT id, url, storage_key, file_name, size_bytes, encode(sha256, 'hex'), content_type, probe::text, created_at
  FROM video WHERE tenant = %(tenant)s AND id = %(id)s
"""

_AT_URL = """
SELECT id, url, storage_key, file_name, size_bytes, encode(sha256, 'hex'), content_type, probe::text, created_at
  FROM video WHERE tenant = %(tenant)s AND url_hash = %(url_hash)s
"""

_ADD_URL = """
INSERT INTO video (tenant, url, url_hash) VALUES (%(tenant)s, %(url)s, %(url_hash)s)
ON CONFLICT (tenant, url_hash) DO NOTHING
"""

_WITH_BYTES = """
SELECT id, url, storage_key, file_name, size_bytes, encode(sha256, 'hex'), content_type, probe::text, created_at
  FROM video
 WHERE tenant = %(tenant)s AND sha256 = decode(%(sha256)s, 'hex') AND storage_key IS NOT NULL AND url IS NULL
"""

_ADD_UPLOAD = """
INSERT INTO video (id, tenant, storage_key, size_bytes, sha256, file_name, content_type)
VALUES (%(id)s, %(tenant)s, %(storage_key)s, %(size_bytes)s, decode(%(sha256)s, 'hex'), %(file_name)s, %(content_type)s)
ON CONFLICT (tenant, sha256) WHERE storage_key IS NOT NULL AND url IS NULL DO NOTHING
"""

_SET_PROBE = """
UPDATE video SET probe = %(probe)s::jsonb WHERE tenant = %(tenant)s AND id = %(id)s RETURNING id
"""

_PAGE = """
SELECT id, url, storage_key, file_name, size_bytes, encode(sha256, 'hex'), content_type, probe::text, created_at
  FROM video WHERE tenant = %(tenant)s
 ORDER BY {order} OFFSET %(offset)s LIMIT %(limit)s + 1
"""

_ORDER = Order(
    {"createdAt": "created_at", "fileName": "file_name", "sizeBytes": "size_bytes"}, default_dir="desc", tie="id"
)


def resolve(db: Connection, tenant: str, *, video_id: UUID | None, video_url: str | None) -> Video:
    """The video that a request means; one that its URL names for the first time is made."""
    if video_id is not None:
        return read(db, tenant, video_id)
    if not video_url:
        raise Invalid(message="Provide at least one of videoId or videoUrl")
    return at_url(db, tenant, video_url)


def read(db: Connection, tenant: str, video_id: UUID) -> Video:
    rows = db.exec_driver_sql(_READ, {"tenant": tenant, "id": video_id}).fetchall()
    if not rows:
        raise VideoNotFound(video_id)
    return _video(*rows[0])


def at_url(db: Connection, tenant: str, url: str) -> Video:
    checks.insist({"videoUrl": checks.text(url, URL_LONGEST)})
    where = {"tenant": tenant, "url": url, "url_hash": hashlib.sha256(url.encode()).digest()}
    rows = db.exec_driver_sql(_AT_URL, where).fetchall()
    if not rows:
        db.exec_driver_sql(_ADD_URL, where)  # whoever is making it at this moment is waited for
        rows = db.exec_driver_sql(_AT_URL, where).fetchall()
    return _video(*rows[0])


def add_upload(db: Connection, tenant: str, upload: Upload) -> Video:
    """The video of these bytes. Where the tenant has them already it is the older one, which has another id; then the
    new ones are not needed."""
    values = {"tenant": tenant} | {name: getattr(upload, name) for name in Upload.__dataclass_fields__}
    db.exec_driver_sql(_ADD_UPLOAD, values)
    return _video(*db.exec_driver_sql(_WITH_BYTES, values).fetchall()[0])


def set_probe(db: Connection, tenant: str, video_id: UUID, probe: Mapping[str, Any]) -> None:
    values = {"tenant": tenant, "id": video_id, "probe": json.dumps(probe)}
    if not db.exec_driver_sql(_SET_PROBE, values).fetchall():
        raise VideoNotFound(video_id)


def page(db: Connection, tenant: str, window: Window = FIRST) -> Page[Video]:
    by, direction = _ORDER.of(window)
    statement = _PAGE.format(order=_ORDER.sql(by, direction))
    rows = db.exec_driver_sql(statement, {"tenant": tenant, "offset": window.offset, "limit": window.limit}).fetchall()
    return listing.page([_video(*row) for row in rows], window, by, direction)


def _video(*columns: Any) -> Video:
    values = dict(zip(Video.__dataclass_fields__, columns, strict=True))
    return Video(**values | {"probe": values["probe"] and json.loads(values["probe"])})


_STORED = """
SELECT id, storage_key FROM video WHERE tenant = %(tenant)s AND id > %(after)s AND storage_key IS NOT NULL
 ORDER BY id LIMIT %(at_most)s
"""

_NAMED = "SELECT storage_key FROM video WHERE tenant = %(tenant)s AND storage_key = ANY (%(keys)s::text[])"


def published(db: Connection, tenant: str, after: UUID, at_most: int) -> list[tuple[UUID, str, frozenset[str]]]:
    """Those whose bytes are ours, in the order of ids from `after` on: in which folder the bytes lie, by which name."""
    values = {"tenant": tenant, "after": after, "at_most": at_most}
    rows = db.exec_driver_sql(_STORED, values).fetchall()
    split = [(video_id, *key.rpartition("/")) for video_id, key in rows]
    return [(video_id, folder + slash, frozenset([name])) for video_id, folder, slash, name in split]


def named(db: Connection, tenant: str, keys: Collection[str]) -> set[str]:
    """Which of the keys are those of videos."""
    return {key for (key,) in db.exec_driver_sql(_NAMED, {"tenant": tenant, "keys": list(keys)}).fetchall()}
