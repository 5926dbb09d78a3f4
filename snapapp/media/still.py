"""One frame, for stepping through a video."""

from typing import BinaryIO

from snapapp.media import pictures
from snapapp.media.container import opened
from snapapp.media.limits import Limits
from snapapp.media.moments import frames_from, of_second
from snapapp.media.studio import studio
from snapapp.media.wanted import Wanted

_QUALITY = 3


def still(source: BinaryIO, at: float, max_width: int = 1280, limits: Limits | None = None) -> bytes:
    """The frame shown at this second, upright, as JPEG."""
    wanted = Wanted(start_seconds=at, max_width=max_width)
    moment = of_second(at)
    with opened(source, limits or Limits()) as video:
        frame = next(frames_from(video, moment, moment)).frame
        place = studio(video, frame, wanted.max_width)
        return pictures.jpeg(place.image(place.picture(frame)), _QUALITY)
