"""The payloads of jobs. They hold all that a job needs, because a child process has no connection to the database."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from snapapp.domain.rules.snaps import WANTED
from snapapp.domain.rules.subjects import Subject
from snapapp.domain.tables import Snap, Video


def of_snap(snap: Snap, video: Video) -> dict[str, Any]:
    wanted = {name: getattr(snap, name) for name in WANTED}
    return {"video": place_of(video)} | _developed(wanted, snap.overlay, snap.subject)


def of_frames(
    url: str, wanted: Mapping[str, Any], overlay: Mapping[str, Any] | None, subject: Subject, folder: str
) -> dict[str, Any]:
    """The same without a snap; `folder` is where attempts have their prefixes."""
    return {"video": {"url": url}, "folder": folder} | _developed(wanted, overlay, subject)


def _developed(wanted: Mapping[str, Any], overlay: Mapping[str, Any] | None, subject: Subject) -> dict[str, Any]:
    return {
        "wanted": wanted,
        "overlay": overlay,
        "subject_id": subject.id,
        "values": [attribute.value for attribute in subject.attributes],
    }


def of_video(video: Video) -> dict[str, Any]:
    return {"video": place_of(video), "video_id": str(video.id)}


def of_preview(video: Video, key: str) -> dict[str, Any]:
    """`key`: the storage key of the copy."""
    return of_video(video) | {"key": key}


def of_still(video: Video, at: float, key: str) -> dict[str, Any]:
    return of_video(video) | {"at": at, "key": key}


def place_of(video: Video) -> dict[str, Any]:
    """Where its bytes are: an upload by its storage key, any other video by its URL."""
    return {"key": video.storage_key} if video.storage_key else {"url": video.url}


def host_of(video: Video) -> str | None:
    """None for an upload, which is read from the storage."""
    return None if video.storage_key else host_at(video.url or "")


def host_at(url: str) -> str | None:
    """The key that a limit on jobs for each remote server goes by; None where nobody can say whose it is."""
    try:
        return f"host:{urlsplit(url).hostname or ''}"[:200]
    except ValueError:
        return None


def video_of(payload: dict[str, Any]) -> UUID:
    return UUID(payload["video_id"])
