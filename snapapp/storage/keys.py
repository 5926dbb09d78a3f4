"""What a key may be, and the keys that snapapp uses. Keys use only characters that file systems, S3 and URLs all take
without escaping. No segment begins with a dot, so no key is a hidden name, `.` or `..`."""

import re
from hashlib import sha256
from uuid import UUID

from snapapp.storage.errors import InvalidKey

LONGEST = 800  # S3 takes 1,024; the rest is for a prefix within the bucket
LONGEST_SEGMENT = 200
FRAMES, SNAPS, VIDEOS = FOLDERS = ("frames/", "snaps/", "videos/")  # all that snapapp writes, in alphabetical order

OWNER = "owner"  # names the database whose rows say which files may be deleted

_SEGMENT = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*")
_ID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OF_SNAP = re.compile(rf"{SNAPS}({_ID})/")
_OF_REQUEST = re.compile(rf"{FRAMES}{_ID}/[0-9]+/[0-9]+/[^/]+")
_STILL = re.compile(rf"{VIDEOS}[^/]+/{_ID}/still_[0-9]{{10,}}\.jpg")
_PREVIEW = re.compile(rf"{VIDEOS}[^/]+/{_ID}/preview\.mp4")


def checked(key: str) -> str:
    if len(key) > LONGEST:
        raise InvalidKey(key, f"it has {len(key)} characters, and {LONGEST} fit")
    for segment in key.split("/"):
        if not is_segment(segment):
            raise InvalidKey(key, f"{segment[:40]!r} cannot stand between slashes")
    return key


def checked_prefix(prefix: str) -> str:
    """The prefix, which must end with a slash, so that `snaps/1` never names objects below `snaps/12/`."""
    if not prefix.endswith("/"):
        raise InvalidKey(prefix, "a prefix ends with a slash")
    checked(prefix[:-1])
    return prefix


def is_segment(text: str) -> bool:
    return len(text) <= LONGEST_SEGMENT and _SEGMENT.fullmatch(text) is not None


def segment(text: str) -> str:
    """Any text as one segment of a key, different segments for different texts: other characters become =XX."""
    escaped = re.sub(
        rb"[^A-Za-z0-9_-]", lambda match: b"=" + match[0].hex().upper().encode(), text.encode("utf-8", "surrogatepass")
    )
    if not escaped or len(escaped) > LONGEST_SEGMENT:
        return f"=={sha256(escaped).hexdigest()}"
    return escaped.decode()


def of_video(tenant: str, video_id: UUID) -> str:
    """The prefix of a video's files: `source` if the video was uploaded, and the preview and stills that somebody asked
    for."""
    return f"{VIDEOS}{segment(tenant)}/{video_id}/"


def of_preview(tenant: str, video_id: UUID) -> str:
    return f"{of_video(tenant, video_id)}preview.mp4"


def of_still(tenant: str, video_id: UUID, microseconds: int) -> str:
    # 13 digits: ten were milliseconds once
    return f"{of_video(tenant, video_id)}still_{microseconds:013}.jpg"


def is_repeatable(key: str) -> bool:
    """Whether the key is of a preview or a still, which are made again on request."""
    return is_still(key) or _PREVIEW.fullmatch(key) is not None


def is_still(key: str) -> bool:
    return _STILL.fullmatch(key) is not None


def folder_of(key: str) -> str:
    """The key's prefix up to its last slash."""
    return f"{key.rpartition('/')[0]}/"


def of_snap(snap_id: UUID) -> str:
    """The prefix of everything that was ever made of the snap."""
    return f"{SNAPS}{snap_id}/"


def snap_of(key: str) -> UUID | None:
    """The id of the snap that the key is of."""
    found = _OF_SNAP.match(key)
    return UUID(found[1]) if found else None


def of_attempt(snap_id: UUID, lease_seq: int) -> str:
    """The prefix below which one attempt at a snap writes; no other attempt ever writes there."""
    return f"{of_snap(snap_id)}{lease_seq}/"


def of_request(request_id: UUID) -> str:
    """The prefix of frames that were made for a request without a snap. No row refers to them; the sweep removes them
    after a day."""
    return f"{FRAMES}{request_id}/"


def is_of_request(key: str) -> bool:
    """Whether the key is of a file made for such a request. The whole shape is compared, because another program may
    use a folder `frames/` in the same bucket."""
    return _OF_REQUEST.fullmatch(key) is not None
