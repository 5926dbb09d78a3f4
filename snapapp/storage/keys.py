"""What a key may be, and the keys that snapapp uses. The alphabet is the one that file systems, S3 and URLs all take
as it is; a first character that is no dot leaves hidden names, `.` and `..` to others."""

import re
from hashlib import sha256
from uuid import UUID

from snapapp.storage.errors import InvalidKey

LONGEST = 800  # of the 1,024 that S3 takes; a prefix of the bucket comes before it
LONGEST_SEGMENT = 200
FRAMES, SNAPS, VIDEOS = FOLDERS = ("frames/", "snaps/", "videos/")  # all that is ours, in the order of a list

_SEGMENT = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*")
_ID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OF_REQUEST = re.compile(rf"{FRAMES}{_ID}/[0-9]+/[0-9]+/[^/]+")
_REPEATABLE = re.compile(rf"{VIDEOS}[^/]+/{_ID}/(preview\.mp4|still_[0-9]{{10,}}\.jpg)")


def checked(key: str) -> str:
    if len(key) > LONGEST:
        raise InvalidKey(key, f"it has {len(key)} characters, and {LONGEST} fit")
    for segment in key.split("/"):
        if not is_segment(segment):
            raise InvalidKey(key, f"{segment[:40]!r} cannot stand between slashes")
    return key


def checked_prefix(prefix: str) -> str:
    """It ends with a slash, so `snaps/1/` never means what is in `snaps/12/`."""
    if not prefix.endswith("/"):
        raise InvalidKey(prefix, "a prefix ends with a slash")
    checked(prefix[:-1])
    return prefix


def is_segment(text: str) -> bool:
    return len(text) <= LONGEST_SEGMENT and _SEGMENT.fullmatch(text) is not None


def segment(text: str) -> str:
    """Any text as one segment, different ones for different texts: what is not of the alphabet becomes =XX."""
    escaped = re.sub(
        rb"[^A-Za-z0-9_-]", lambda found: b"=" + found[0].hex().upper().encode(), text.encode("utf-8", "surrogatepass")
    )
    if not escaped or len(escaped) > LONGEST_SEGMENT:
        return f"=={sha256(escaped).hexdigest()}"
    return escaped.decode()


def of_video(tenant: str, video_id: UUID) -> str:
    """The prefix of a video: `source` where it was uploaded, a preview and stills where somebody asked for them."""
    return f"{VIDEOS}{segment(tenant)}/{video_id}/"


def of_preview(tenant: str, video_id: UUID) -> str:
    return f"{of_video(tenant, video_id)}preview.mp4"


def of_still(tenant: str, video_id: UUID, milliseconds: int) -> str:
    return f"{of_video(tenant, video_id)}still_{milliseconds:010}.jpg"


def is_repeatable(key: str) -> bool:
    """A preview or a still: made again when somebody asks for it."""
    return _REPEATABLE.fullmatch(key) is not None


def of_snap(snap_id: UUID) -> str:
    """The prefix of all that was ever made of it."""
    return f"{SNAPS}{snap_id}/"


def of_attempt(snap_id: UUID, lease_seq: int) -> str:
    """The prefix of what one attempt makes of a snap; no other attempt ever writes there."""
    return f"{of_snap(snap_id)}{lease_seq}/"


def of_request(request_id: UUID) -> str:
    """The prefix of frames that belong to no snap: nothing refers to them, so the sweep removes them after a day."""
    return f"{FRAMES}{request_id}/"


def is_of_request(key: str) -> bool:
    """What an attempt made for one; another's folder of that name has another shape."""
    return _OF_REQUEST.fullmatch(key) is not None
