"""The frames and clips of the old service: copied from its folder or bucket into our storage, or kept as their old
URLs."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from snapapp import storage
from snapapp.domain import snaps
from snapapp.legacy import shapes
from snapapp.legacy.errors import LegacyError
from snapapp.settings.table import Settings, StorageKind
from snapapp.storage import Local, Room, Storage, keys
from snapapp.storage.s3 import S3

_BEFORE_ANY_ATTEMPT = 0


Artefact = dict[str, Any]


def files_of(snap: shapes.Row, artefacts: list[Artefact]) -> tuple[dict[str, Any], int]:
    """The columns of our row about the files of an old snap, and how many files were not copied and have no URL. A
    copied file has a name below the prefix, any other keeps its old URL."""
    frames, clip = shapes.frames_of(snap), shapes.clip_of(snap)
    copied, lost_count = {each["file_name"] for each in artefacts}, 0
    for file in _every(frames, clip):
        path = file.pop("path")
        if file["file_name"] in copied:
            continue
        if _is_url(path):
            file["url"] = path
        else:
            lost_count += 1
    extras = {"artefacts": artefacts}
    columns = {
        "frames": frames if shapes.ended(snap) == "COMPLETED" else None,
        "frame_count": len(frames),
        "clip": clip,
        "extras": extras,
        "media_prefix": _prefix(snap["id"]) if artefacts else None,
        "media_bytes": snaps.bytes_of(extras),
    }
    return columns, lost_count


def _every(frames: list[dict[str, Any]], clip: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [*frames, clip] if clip else frames


def _prefix(snap_id: UUID) -> str:
    return keys.of_attempt(snap_id, _BEFORE_ANY_ATTEMPT)


@dataclass(frozen=True, slots=True)
class Archive:
    """The storage that holds the old files, and the storage that they are copied to."""

    old: Storage
    ours: Storage

    def copied(self, snap: shapes.Row) -> list[Artefact]:
        """Copies a snap's files as far as the old storage has them. A file that an earlier run copied is not copied
        again."""
        every = _every(shapes.frames_of(snap), shapes.clip_of(snap))
        return [artefact for file in every if (artefact := self._copy_file(file, snap["id"]))]

    def has(self, snap_id: UUID, artefacts: list[Artefact]) -> bool:
        """Whether our storage still has all of a snap's copied files."""
        return all(self.ours.exists(_prefix(snap_id) + each["file_name"]) for each in artefacts)

    def _copy_file(self, file: dict[str, Any], snap_id: UUID) -> Artefact | None:
        if not keys.is_segment(file["file_name"]):
            return None
        for key in _candidates(file["path"], snap_id):
            if self.old.exists(key):
                return self._put(key, _prefix(snap_id), file["file_name"])
        return None

    def _put(self, key: str, prefix: str, name: str) -> Artefact:
        with self.old.open(key) as source:
            sha256 = hashlib.file_digest(source, "sha256").hexdigest()
            source.seek(0)
            if not self.ours.exists(prefix + name):
                self.ours.put(prefix + name, source)
            return {"file_name": name, "sha256": sha256, "size_bytes": source.stored.size}


def archive_of(media: str, settings: Settings) -> Archive:
    ours = storage.from_settings(settings)
    if media.startswith("s3://"):
        return Archive(_bucket(media, settings), ours)
    if not Path(media).is_dir():
        raise LegacyError(f"--media {media} is no folder.")
    return Archive(Local(Path(media), Room(Path(media), 0)), ours)


def _bucket(media: str, settings: Settings) -> S3:
    """The old bucket, opened with the credentials of our own settings: both buckets are mostly at one provider."""
    bucket, _, prefix = media.removeprefix("s3://").partition("/")
    if not bucket or not settings.s3_access_key_id or not settings.s3_secret_access_key:
        raise LegacyError(
            "--media s3://BUCKET/PREFIX needs SNAPAPP_S3_ACCESS_KEY_ID and SNAPAPP_S3_SECRET_ACCESS_KEY, and perhaps "
            "SNAPAPP_S3_ENDPOINT."
        )
    old_storage = storage.from_settings(
        replace(settings, storage=StorageKind.S3, s3_bucket=bucket, s3_prefix=prefix.strip("/"))
    )
    assert isinstance(old_storage, S3)
    return old_storage


def _candidates(path: str, snap_id: UUID) -> Iterator[str]:
    """Keys that may be the file's in the old storage. Its root within the path is unknown, so every end of the path is
    tried, the longest first. Each key must contain the snap's id, so that no snap gets another's files."""
    steps = [step for step in unquote(urlsplit(path).path if _is_url(path) else path).split("/") if step]
    if all(keys.is_segment(step) for step in steps):
        for start in range(len(steps)):
            if str(snap_id) in steps[start:-1]:
                yield "/".join(steps[start:])


def _is_url(path: str) -> bool:
    return path.lower().startswith(("http://", "https://"))
