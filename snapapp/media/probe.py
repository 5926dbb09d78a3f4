"""Describes a video without making anything of it."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import BinaryIO

from av.container import InputContainer
from av.video.stream import VideoStream

from snapapp.media.container import (
    SECOND,
    Video,
    codec_name,
    in_words,
    opened_unchecked,
    prepare_video,
    reason_against,
    video_stream,
)
from snapapp.media.errors import MediaError, NoVideo, Unusable
from snapapp.media.moments import duration_there, frames_from
from snapapp.media.options import Limits

_HDR = {16, 18}  # transfer characteristics: PQ, HLG
_BROWSERS = {
    "mp4": {"h264", "vp9", "av1"},
    "mov": {"h264"},
    "webm": {"vp8", "vp9", "av1"},
}
_EIGHT_BITS = {"yuv420p", "yuvj420p"}
_UNNOTICED = 5_000  # microseconds: a moment so much later is of the same frame
_FASTEST = 1000  # frames a second; a higher rate in a file means that it is unknown


@dataclass(frozen=True, slots=True)
class Probe:
    compatible: bool
    container_format: str
    codec_name: str | None
    width: int | None
    """Of the coded picture, before `rotation`."""
    height: int | None
    duration_seconds: float | None
    source_fps: float | None
    pixel_format: str | None
    reason: str | None
    """Why the video cannot be used, for a person."""

    rotation: int
    """Degrees clockwise by which a player turns the picture. Our frames and clips are upright already."""
    frame_count: int | None
    """As the file states it, if it does."""
    has_audio: bool
    is_hdr: bool
    """High dynamic range. It is not converted, so the pictures will look pale."""
    plays_in_browsers: bool
    """With our times: a browser does not count from the file's start, where a file begins later than at 0."""
    filmed_at: str | None
    """The time that the camera wrote into the file, in ISO 8601 with an offset. Cameras' clocks may be wrong."""


def probe(source: BinaryIO, limits: Limits | None = None) -> Probe:
    """Describes a video. A video that can be opened but not used is described with the reason; raises if it cannot be
    opened."""
    limits = limits or Limits()
    with opened_unchecked(source, limits) as (container, kind, reading):
        stream = video_stream(container)
        if stream is None:
            return _description(container, kind, None, problem=NoVideo("the file has no video stream"))
        if problem := reason_against(stream, kind, limits):
            return _description(container, kind, stream, problem=problem)
        return _describe_decoded(prepare_video(container, stream, kind, reading, limits))


def described(video: Video, rotation: int) -> Probe:
    """Of a file that was cut off it states the duration that is there: beyond it nothing could be marked. To find that,
    it may read the file's end."""
    whole, there = _description(video.container, video.kind, video.stream, rotation), duration_there(video)
    return replace(whole, duration_seconds=there / SECOND) if there and there > 0 else whole


def clockwise(counterclockwise: float) -> int:
    """The rotation in degrees, rounded to quarter turns: players ignore the rest too."""
    return round(-counterclockwise / 90) % 4 * 90


def _describe_decoded(video: Video) -> Probe:
    """Describes the video after decoding one frame, which proves that it can be decoded and has the rotation."""
    try:
        with in_words(video.reading):
            first = next(frames_from(video, 0, 0))
            return described(video, clockwise(first.frame.rotation))
    except Unusable as problem:
        return _description(video.container, video.kind, video.stream, problem=problem)


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
        plays_in_browsers=problem is None
        and codec in _BROWSERS.get(kind, ())
        and pixel_format in _EIGHT_BITS
        and (container.start_time or 0) <= _UNNOTICED,
        filmed_at=_filmed_at(container.metadata | (stream.metadata if stream else {})),
    )


def _filmed_at(metadata: dict[str, str]) -> str | None:
    """When the video was filmed. Apple's key has the local offset, the other key is in UTC. A camera whose clock is not
    set writes 1904 or 1970."""
    for key in ("com.apple.quicktime.creationdate", "creation_time"):
        try:
            moment = datetime.fromisoformat(metadata.get(key, "").strip())
        except ValueError:
            continue
        if moment.tzinfo and 1980 <= moment.year < 9000:
            return moment.isoformat()
    return None
