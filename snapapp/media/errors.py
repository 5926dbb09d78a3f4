"""What can be wrong with a video, or with what is wanted of it. The messages are for the person who sent it."""

from snapapp.errors import SnapError


class MediaError(SnapError):
    """The root of what this package raises; what the source itself raises while it is read passes through as it is."""


class OutOfMemory(MediaError):
    """Memory was refused. Not a verdict on the video: the same one may pass where there is more of it."""


class Unusable(MediaError):
    """Permanent: this video, or this wish, will fail the same way every time."""


class InvalidWish(Unusable, ValueError):
    """What is wanted contradicts itself or is out of bounds."""


class Unreadable(Unusable):
    """The file is damaged, cut off, or no video at all."""


class UnsupportedContainer(Unusable):
    """The file is something other than MP4, MOV, MKV, WebM, MPEG-TS, FLV or AVI."""


class UnsupportedCodec(Unusable):
    """The video in the file is coded in a way that is not on our list, or encrypted."""


class NoVideo(Unusable):
    """The file holds sound, or nothing, but no moving picture."""


class TooLarge(Unusable):
    """The video, or what would have to be decoded of it, is beyond our limits."""


class PastTheEnd(Unusable):
    """The moment lies after the last frame."""
