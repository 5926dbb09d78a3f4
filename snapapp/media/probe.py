"""What a video is, without making anything of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from av.container import InputContainer
from av.video.stream import VideoStream

from snapapp.media.container import (
    SECOND,
    Video,
    codec_name,
    in_words,
    made_ready,
    opened_unchecked,
    video_stream,
    why_not,
)
from snapapp.media.errors import MediaError, NoVideo, Unusable
from snapapp.media.moments import frames_from
from snapapp.media.options import Limits

_HDR = {16, 18}  # transfer characteristics: PQ, HLG
_BROWSERS = {
    "mp4": {"h264", "vp9", "av1"},
    "mov": {"h264"},
    "webm": {"vp8", "vp9", "av1"},
}
_EIGHT_BITS = {"yuv420p", "yuvj420p"}
_FASTEST = 1000  # frames a second; more is a file that does not know


@dataclass(frozen=True, slots=True)
class Probe:
    compatible: bool
    container_format: str
    codec_name: str | None
    width: int | None
    """As coded; see `rotation`."""
    height: int | None
    duration_seconds: float | None
    source_fps: float | None
    pixel_format: str | None
    reason: str | None
    """Why it is not compatible, for a person."""

    rotation: int
    """Degrees clockwise by which a player turns it; what we make of it is upright."""
    frame_count: int | None
    """As the file says, where it does."""
    has_audio: bool
    is_hdr: bool
    """High dynamic range is not mapped to the ordinary one: the pictures will look pale."""
    plays_in_browsers: bool
    filmed_at: str | None
    """As the camera wrote into the file, in ISO 8601 with an offset. Clocks of cameras may be wrong."""


def probe(source: BinaryIO, limits: Limits | None = None) -> Probe:
    """Raises when the file cannot be opened; what can be opened and not used is described, with the reason."""
    limits = limits or Limits()
    with opened_unchecked(source, limits) as (container, kind, reading):
        stream = video_stream(container)
        if stream is None:
            return _description(container, kind, None, problem=NoVideo("the file has no video stream"))
        if problem := why_not(stream, kind, limits):
            return _description(container, kind, stream, problem=problem)
        return _decoded(made_ready(container, stream, kind, reading, limits))


def described(video: Video, rotation: int) -> Probe:
    return _description(video.container, video.kind, video.stream, rotation)


def clockwise(counterclockwise: float) -> int:
    """In quarter turns: players make nothing of the rest either."""
    return round(-counterclockwise / 90) % 4 * 90


def _decoded(video: Video) -> Probe:
    """With one frame decoded: only that proves it can be, and tells how it is turned."""
    try:
        with in_words(video.reading):
            first = next(frames_from(video, 0, 0))
    except Unusable as problem:
        return _description(video.container, video.kind, video.stream, problem=problem)
    return described(video, clockwise(first.frame.rotation))


def _description(
    container: InputContainer,
    kind: str,
    stream: VideoStream | None,
    rotation: int = 0,
    problem: MediaError | None = None,
) -> Probe:
    context = stream.codec_context if stream else None
    codec = codec_name(stream) if stream else None
    pixel_format = context.pix_fmt if context else None
    rate = stream.average_rate or stream.guessed_rate if stream else None
    return Probe(
        compatible=problem is None,
        container_format=container.format.name,
        codec_name=codec,
        width=context.width if context else None,
        height=context.height if context else None,
        duration_seconds=container.duration / SECOND if container.duration else None,
        source_fps=round(float(rate), 3) if rate and rate < _FASTEST else None,
        pixel_format=pixel_format,
        reason=str(problem) if problem else None,
        rotation=rotation,
        frame_count=(stream.frames or None) if stream else None,
        has_audio=bool(container.streams.audio),
        is_hdr=context.color_trc in _HDR if context else False,
        plays_in_browsers=problem is None and codec in _BROWSERS.get(kind, ()) and pixel_format in _EIGHT_BITS,
        filmed_at=_filmed_at(container.metadata | (stream.metadata if stream else {})),
    )


def _filmed_at(said: dict[str, str]) -> str | None:
    """Apple's key has the offset of the place, the other is in UTC. A camera without a clock writes 1904 or 1970."""
    for key in ("com.apple.quicktime.creationdate", "creation_time"):
        try:
            moment = datetime.fromisoformat(said.get(key, "").strip())
        except ValueError:
            continue
        if moment.tzinfo and 1980 <= moment.year < 9000:
            return moment.isoformat()
    return None
