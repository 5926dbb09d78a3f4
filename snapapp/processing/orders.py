"""What jobs are told: everything, because a child has no database to ask. The API writes them, the darkroom reads."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from snapapp.snaps import Snap
from snapapp.videos import Video

SNAP, PROBE, PREVIEW, STILL, EXTRACT = "snap.process", "video.probe", "video.preview", "video.still", "frames.extract"


def of_snap(snap: Snap, video: Video) -> dict[str, Any]:
    return {
        "video": place_of(video),
        "wanted": {
            "start_seconds": snap.start_seconds,
            "start_frame": snap.start_frame,
            "duration_seconds": snap.duration_seconds,
            "clip_seconds": snap.clip_seconds,
            "fps": snap.fps,
            "max_width": snap.max_width,
            "format": snap.format,
            "quality": snap.quality,
        },
        "overlay": snap.overlay,
        "subject_id": snap.subject.id,
        "values": [attribute.value for attribute in snap.subject.attributes],
    }


def of_video(video: Video) -> dict[str, Any]:
    return {"video": place_of(video), "video_id": str(video.id)}


def of_preview(video: Video, key: str) -> dict[str, Any]:
    """`key`: where the copy will lie."""
    return of_video(video) | {"key": key}


def of_still(video: Video, at: float, key: str) -> dict[str, Any]:
    return of_video(video) | {"at": at, "key": key}


def place_of(video: Video) -> dict[str, Any]:
    """Where its bytes are: ours by key, everybody's by URL."""
    return {"key": video.storage_key} if video.storage_key else {"url": video.url}


def host_of(video: Video) -> str | None:
    """The key that a limit on jobs for each remote server goes by; None: the bytes are ours."""
    return None if video.storage_key else f"host:{urlsplit(video.url or '').hostname or ''}"[:200]


def video_of(payload: dict[str, Any]) -> UUID:
    return UUID(payload["video_id"])
