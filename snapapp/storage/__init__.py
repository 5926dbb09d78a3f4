"""Stores bytes by key, in a folder or in a bucket, behind one interface.

Read in this order: `keys` (what a key may be), `model` (the interface), `uploads` (bytes that come in one request),
`resumable` (uploads in several parts), `room` (whether the disk has space), `local` and `s3` (the two storages),
`sweep` (compares rows with objects)."""

from snapapp.settings.table import Settings, StorageKind
from snapapp.storage.errors import (
    Changed,
    InvalidKey,
    NoRoom,
    NotStored,
    ObjectRefused,
    StorageAway,
    StorageError,
    UploadExpired,
    UploadInUse,
    UploadTooLarge,
)
from snapapp.storage.local import Local
from snapapp.storage.model import Reader, Source, Storage, Stored
from snapapp.storage.room import Room, full_disk_as_no_room
from snapapp.storage.uploads import Received, Upload

__all__ = [
    "Changed",
    "InvalidKey",
    "Local",
    "NoRoom",
    "NotStored",
    "ObjectRefused",
    "Reader",
    "Received",
    "Room",
    "Source",
    "Storage",
    "StorageAway",
    "StorageError",
    "Stored",
    "Upload",
    "UploadExpired",
    "UploadInUse",
    "UploadTooLarge",
    "from_settings",
    "full_disk_as_no_room",
    "room_of",
]


def from_settings(settings: Settings) -> Storage:
    """The storage that the settings name. This opens nothing and creates no folder: a storage that cannot be reached
    raises when it is used."""
    room = room_of(settings)
    if settings.storage is StorageKind.LOCAL:
        return Local(settings.data_dir / "media", room)
    from snapapp.storage.s3 import S3  # late, because the library behind it takes 6 MB

    return S3(
        bucket=settings.s3_bucket or "",
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key_id=settings.s3_access_key_id or "",
        secret_access_key=settings.s3_secret_access_key or "",
        prefix=settings.s3_prefix,
        spool=settings.data_dir / "incoming",
        room=room,
    )


def room_of(settings: Settings) -> Room:
    """The disk space that decides whether new heavy work is accepted: `room_of(settings).refusal()` says why not."""
    return Room(settings.data_dir, settings.disk_free_min_mb)
