"""One frame, for stepping through a video."""

from typing import BinaryIO

from snapapp.media import pictures
from snapapp.media.container import opened
from snapapp.media.limits import Limits
from snapapp.media.moments import frames_from, of_second
from snapapp.media.scaling import studio


def still(source: BinaryIO, at: float, max_width: int = 1280, limits: Limits | None = None) -> bytes:
    """The frame shown at this second, upright, as JPEG."""
    moment = of_second(at)
    with opened(source, limits or Limits()) as video:
        frame = next(frames_from(video, moment, moment)).frame
        place = studio(video, frame, max_width)
        return pictures.jpeg(place.image(place.picture(frame)))
