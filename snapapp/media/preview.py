"""Makes a copy that every browser plays, with the times of the original: a moment marked on the copy is valid for the
original. It shows the first frame from 0 on, also of a video that begins later: of a film that begins later a browser
reaches as much less of the end."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from av.packet import Packet
from av.video.stream import VideoStream

from snapapp.media.clip import ClipWriter, film
from snapapp.media.container import SECOND, Video, codec_name, opened
from snapapp.media.errors import Unreadable
from snapapp.media.moments import NO_PICTURE, all_frames, duration
from snapapp.media.options import Limits, Progress, unheard
from snapapp.media.probe import probe
from snapapp.media.scaling import scaler_for

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
    """Writes the copy as one MP4, without sound, into an empty unbuffered file; a failure leaves the file empty."""
    limits = limits or Limits()
    try:
        with opened(source, limits) as video:
            if not _needs_no_coding(video):
                return _encode(video, target, progress)
            remuxed = _remux(video, target, progress)
        if remuxed and _plays(target, limits):
            return remuxed
        _empty(target)
        with opened(source, limits) as video:
            return _encode(video, target, progress)
    except BaseException:
        _empty(target)
        raise


def _needs_no_coding(video: Video) -> bool:
    """Whether browsers play the video stream as it is, and only its container or its times must be replaced."""
    is_movable = video.kind == "mkv" or (video.kind in ("mp4", "mov") and video.begins > 0)
    return is_movable and codec_name(video.stream) == "h264" and video.stream.pix_fmt == "yuv420p"


def _plays(target: BinaryIO, limits: Limits) -> bool:
    """Whether the copied stream plays. A damaged video may be useless when its packets are only copied, although it can
    be decoded."""
    return probe(target, limits).compatible


def _empty(target: BinaryIO) -> None:
    target.seek(0)
    target.truncate()


def _remux(video: Video, target: BinaryIO, progress: Progress) -> Preview | None:
    """Copies the packets into an MP4 without coding them again, in seconds instead of minutes. None if there were
    none, or if an edit list hides frames, which the copy would show."""
    report, ends, count = _ProgressReport(video, progress), 0, 0
    with film(target) as file:
        stream = file.add_stream_from_template(video.stream, opaque=True)
        for packet in _with_decoding_times(video.packets()):
            if packet.is_discard:
                return None
            assert packet.pts is not None
            assert packet.dts is not None
            report.reached(begins := video.time(packet.pts))
            ends = max(ends, begins + round((packet.duration or 0) * packet.time_base * SECOND))
            packet.pts, packet.dts = packet.pts - video.pts(0), packet.dts - video.pts(0)
            if not count:
                packet.pts, packet.dts = 0, packet.dts - packet.pts
            count += 1
            packet.stream = stream
            file.mux(packet)
    return Preview(ends / SECOND, count) if count else None


def _with_decoding_times(packets: "Iterator[Packet[VideoStream]]") -> "Iterator[Packet[VideoStream]]":
    """Packets with decoding times. Matroska has none; FFmpeg derives them, but not for the first packets, for which any
    rising times that are early enough will do. A frame apart they make the film as long as the video: it lasts from the
    first of them."""
    waiting: list[Packet[VideoStream]] = []
    for packet in packets:
        if packet.pts is None:
            continue
        waiting.append(packet)
        if packet.dts is None and len(waiting) < _MOST_REORDERED:
            continue
        dts = packet.dts if packet.dts is not None else packet.pts
        for before, one in enumerate(reversed(waiting)):
            one.dts = dts - before * (packet.duration or 1)
        yield from waiting
        waiting.clear()


def _encode(video: Video, target: BinaryIO, progress: Progress) -> Preview:
    video.pixels_left = video.limits.max_preview_pixels
    video.afford(video.stream.frames)
    report, scaler, writer = _ProgressReport(video, progress), None, None
    try:
        for shown in all_frames(video):
            report.reached(shown.begins)
            scaler = scaler or scaler_for(video, shown.frame, _MAX_WIDTH)
            writer = writer or ClipWriter(target, scaler.size, video.stream.average_rate, video.limits.threads)
            begins = shown.begins if writer.frame_count else 0
            writer.add(scaler.picture(shown.frame), begins, shown.ends)
        if writer:
            writer.close()
    finally:
        if writer:
            with suppress(OSError):  # an earlier error is the one to report
                writer.abandon()
    if not writer:
        raise Unreadable(NO_PICTURE)
    return Preview(writer.ends / SECOND, writer.frame_count)


class _ProgressReport:
    """Reports progress once for each percent, not for each frame."""

    def __init__(self, video: Video, progress: Progress) -> None:
        self._lasts = duration(video)
        self._progress = progress
        self._percent = 0

    def reached(self, time: int) -> None:
        percent = min(99, 100 * time // self._lasts) if self._lasts else 0
        if percent > self._percent:
            self._percent = percent
            self._progress(percent, "making it playable")
