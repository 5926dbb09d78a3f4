"""The payloads of jobs. A payload holds everything that its job needs, because the child process that runs the job has
no connection to the database."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from snapapp.domain.rules.snaps import WANTED
from snapapp.domain.rules.subjects import Subject
from snapapp.domain.tables import Snap, Video


def of_snap(snap: Snap, video: Video) -> dict[str, Any]:
    wanted = {name: getattr(snap, name) for name in WANTED}
    return {"video": place_of(video)} | _order_of(wanted, snap.overlay, snap.subject)


def of_frames(
    url: str, wanted: Mapping[str, Any], overlay: Mapping[str, Any] | None, subject: Subject, folder: str
) -> dict[str, Any]:
    """The payload of a job that takes frames for a request without a snap. Each attempt writes below a prefix of its
    own in `folder`."""
    return {"video": {"url": url}, "folder": folder} | _order_of(wanted, overlay, subject)


def _order_of(wanted: Mapping[str, Any], overlay: Mapping[str, Any] | None, subject: Subject) -> dict[str, Any]:
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
    """Where the video's bytes are: the storage key of an upload, the URL of any other video."""
    return {"key": video.storage_key} if video.storage_key else {"url": video.url}


def host_of(video: Video) -> str | None:
    """The key for the limit on jobs for each remote server; None for an upload, which is read from our storage."""
    return None if video.storage_key else host_at(video.url or "")


def host_at(url: str) -> str | None:
    """The key for the limit on jobs for each remote server; None where the URL cannot be parsed."""
    try:
        return f"host:{urlsplit(url).hostname or ''}"[:200]
    except ValueError:
        return None


def video_of(payload: dict[str, Any]) -> UUID:
    return UUID(payload["video_id"])
