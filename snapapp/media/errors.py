"""What can be wrong with a video, or with what was asked of it. Messages are for the person who sent it."""

from snapapp.errors import SnapError


class MediaError(SnapError):
    """The root of this package's errors. An error that the source raises while it is read passes through unchanged."""


class OutOfMemory(MediaError):
    """Memory was refused. This is no verdict on the video: with more memory it may pass."""


class Unusable(MediaError):
    """Permanent: this video, or what was asked of it, will fail in the same way every time."""


class InvalidWish(Unusable, ValueError):
    """What was asked contradicts itself or is out of bounds."""


class Unreadable(Unusable):
    """The file is damaged, cut off, or no video at all."""


class UnsupportedContainer(Unusable):
    """The file is something other than MP4, MOV, MKV, WebM, MPEG-TS, FLV or AVI."""


class UnsupportedCodec(Unusable):
    """The video in the file is coded in a way that is not on our list, or encrypted."""


class NoVideo(Unusable):
    """The file holds sound, or nothing, but no moving picture."""


class TooLarge(Unusable):
    """The video, or the part that would have to be decoded, is beyond our limits."""


class PastTheEnd(Unusable):
    """The moment lies after the last frame."""
