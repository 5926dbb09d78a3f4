"""A copy that every browser plays, whose times are those of the original: what is marked on it holds there."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from av.packet import Packet
from av.video.stream import VideoStream

from snapapp.media.clip import ClipWriter, film
from snapapp.media.container import SECOND, Video, codec_name, opened
from snapapp.media.errors import Unreadable
from snapapp.media.moments import all_frames, duration
from snapapp.media.options import Limits, Progress, unheard
from snapapp.media.probe import probe
from snapapp.media.scaling import studio

_MAX_WIDTH = 1280
_MOST_REORDERED = 20  # packets; H.264 allows 16


@dataclass(frozen=True, slots=True)
class Preview:
    duration_seconds: float
    frame_count: int


def preview(
    source: BinaryIO,
    target: BinaryIO,
    progress: Progress = unheard,
    limits: Limits | None = None,
) -> Preview:
    """Without sound. Writes one MP4 into an empty file without a buffer; a failure leaves it empty."""
    limits = limits or Limits()
    try:
        with opened(source, limits) as video:
            if not _fits(video):
                return _coded(video, target, progress)
            moved = _moved(video, target, progress)
        if moved and _plays(target, limits):
            return moved
        _empty(target)
        with opened(source, limits) as video:
            return _coded(video, target, progress)
    except BaseException:
        _empty(target)
        raise


def _fits(video: Video) -> bool:
    """Browsers play what is inside; only the Matroska around it is too much for them."""
    return video.kind == "mkv" and codec_name(video.stream) == "h264" and video.stream.pix_fmt == "yuv420p"


def _plays(target: BinaryIO, limits: Limits) -> bool:
    """What was damaged may be decoded on, and yet be worth nothing when only moved."""
    return probe(target, limits).plays_in_browsers


def _empty(target: BinaryIO) -> None:
    target.seek(0)
    target.truncate()


def _moved(video: Video, target: BinaryIO, progress: Progress) -> Preview | None:
    """Packet by packet into an MP4: seconds instead of minutes."""
    told, ends, count = _Told(video, progress), 0, 0
    with film(target) as file:
        stream = file.add_stream_from_template(video.stream, opaque=True)
        for packet in _ordered(video.packets()):
            assert packet.pts is not None
            assert packet.dts is not None
            told.reached(begins := video.time(packet.pts))
            ends, count = max(ends, begins + round((packet.duration or 0) * packet.time_base * SECOND)), count + 1
            packet.pts, packet.dts = packet.pts - video.pts(0), packet.dts - video.pts(0)
            packet.stream = stream
            file.mux(packet)
    return Preview(ends / SECOND, count) if count else None


def _ordered(packets: "Iterator[Packet[VideoStream]]") -> "Iterator[Packet[VideoStream]]":
    """Matroska has no decoding times; FFmpeg finds them, but not for the first packets. There any do that rise and are
    early enough."""
    waiting: list[Packet[VideoStream]] = []
    for packet in packets:
        if packet.pts is None:
            continue
        waiting.append(packet)
        if packet.dts is None and len(waiting) < _MOST_REORDERED:
            continue
        dts = packet.dts if packet.dts is not None else packet.pts
        for before, one in enumerate(reversed(waiting)):
            one.dts = dts - before
        yield from waiting
        waiting.clear()


def _coded(video: Video, target: BinaryIO, progress: Progress) -> Preview:
    video.pixels_left = video.limits.max_preview_pixels
    video.afford(video.stream.frames)
    told, place, writer = _Told(video, progress), None, None
    try:
        for shown in all_frames(video):
            told.reached(shown.begins)
            place = place or studio(video, shown.frame, _MAX_WIDTH)
            writer = writer or ClipWriter(target, place.size, video.stream.average_rate, video.limits.threads)
            writer.add(place.picture(shown.frame), shown.begins, shown.ends)
        if writer:
            writer.close()
    finally:
        if writer:
            with suppress(OSError):  # whatever went wrong before is the thing to tell
                writer.abandon()
    if not writer:
        raise Unreadable("the file contains no picture that can be decoded: it is damaged, or was cut off")
    return Preview(writer.ends / SECOND, writer.frame_count)


class _Told:
    """Progress by the percent, not by the frame."""

    def __init__(self, video: Video, progress: Progress) -> None:
        self._lasts = duration(video)
        self._progress = progress
        self._percent = 0

    def reached(self, time: int) -> None:
        percent = min(99, 100 * time // self._lasts) if self._lasts else 0
        if percent > self._percent:
            self._percent = percent
            self._progress(percent, "making it playable")
