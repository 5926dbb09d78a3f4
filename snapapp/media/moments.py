"""Finds the frame of a moment. Ordinary phone footage has variable rates, edit lists, negative starts and B-frames, so
a frame is found by the times in the file, never by counting at a rate."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import av
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from snapapp.media.container import SECOND, SeekTooFar, Video, codec_name
from snapapp.media.errors import PastTheEnd, Unreadable

# How far before the moment decoding begins, tried in turn: an MP4 seeks by decoding time, which with B-frames and a
# variable rate leads past the moment in 20 of 1,000 cases.
_FURTHER_BACK = (0, 1 * SECOND, 4 * SECOND, 16 * SECOND, 64 * SECOND)

TOLERATED = SECOND // 4  # so little after the video's end counts as the end

# Frames that no other frame refers to are skipped until so many frames before the moment.
_SURE = 3
_CAN_SKIP = {"h264", "hevc"}
NO_PICTURE = "the file contains no picture that can be decoded: it is damaged, or was cut off"
_ORDINARY_RATE = 240  # frames a second; a file that claims more is probably wrong


@dataclass(frozen=True, slots=True)
class Shown:
    """A frame and when it is shown, since second 0."""

    frame: VideoFrame
    begins: int
    ends: int


def of_second(seconds: float) -> int:
    return round(seconds * SECOND)


def of_frame(video: Video, number: int) -> int:
    """When the frame with this number, from 0, begins."""
    decoding_times = _decoding_times(video)
    if decoding_times and number >= len(decoding_times):
        raise PastTheEnd(_no_frame(video, number, len(decoding_times)))
    if decoding_times:
        video.container.seek(decoding_times[number], stream=video.stream)
    elif video.has_no_index:
        video.begin_anew()
    times: list[int] = []
    before = 0  # how many frames are shown before the first that is read
    for packet in _in_step(video):
        if decoding_times and not times and packet.dts is not None:
            before = bisect_left(decoding_times, packet.dts)
        if packet.is_keyframe and before + len(times) > number and (decoding_times or not packet.is_discard):
            # frames after this keyframe are shown later than those before it; one that is not shown is of another part
            break
        if packet.pts is not None and not packet.is_discard and _is_shown(video, packet):
            times.append(video.time(packet.pts))
    if not before <= number < before + len(times):
        raise PastTheEnd(_no_frame(video, number, before + len(times)))
    return sorted(times)[number - before]


def frames_from(video: Video, moment: int, until: int) -> Iterator[Shown]:
    """The frames from the one shown at the moment on. They go on after `until`; the caller stops."""
    video.afford(_expected_frames(video, moment, until))
    first, rest = _first(video, moment)
    yield first
    yield from rest


def all_frames(video: Video) -> Iterator[Shown]:
    """All frames of a file that was just opened."""
    return _with_ends(video, None)


def duration(video: Video) -> int | None:
    """The duration that the file states, to the end of its longest stream."""
    return video.container.duration or _duration_of_stream(video)


def duration_there(video: Video) -> int | None:
    """The duration of the pictures that are there, if the end of the file is missing: its index lists frames beyond its
    end, or its header states a larger size. Otherwise None, and where too much would have to be read to know it."""
    size, index = video.reading.size, video.stream.index_entries
    if _lists_all_frames(video):
        if index[-1].pos + index[-1].size <= size:
            return None
        return video.time(min(entry.timestamp for entry in index if entry.pos + entry.size > size))
    stated = duration(video)
    if not video.is_cut_segment or stated is None:
        return None
    try:
        video.seek(stated)
    except (SeekTooFar, av.FFmpegError):
        return None
    # the last may be there in part
    return max((video.time(packet.pts) for packet in video.packets() if packet.pts is not None), default=None)


def _duration_of_stream(video: Video) -> int | None:
    if video.stream.duration and video.stream.time_base:
        return round(video.stream.duration * video.stream.time_base * SECOND)
    return None


def _first(video: Video, moment: int) -> tuple[Shown, Iterator[Shown]]:
    """The frame shown at the moment, and those after it."""
    if not video.has_no_index:
        with suppress(SeekTooFar):
            return _first_by_seeking(video, moment)
    return _first_without_index(video, moment)


def _first_by_seeking(video: Video, moment: int) -> tuple[Shown, Iterator[Shown]]:
    starts = [moment - back for back in _FURTHER_BACK if moment > back]
    for start in [*starts, None]:
        for skip_before in _skipping(video, moment):
            _seek(video, start)
            frames = _with_ends(video, skip_before)
            first, last = _up_to(frames, moment)
            if first is None or last is None or (first.begins > moment and start is not None):
                break  # decoding began too late; the next start is further back
            if skip_before is not None and (last.begins < skip_before or moment >= last.ends):
                continue  # the moment's frame may have been skipped
            _require_not_past(video, moment, last)
            return last, frames
    raise Unreadable(NO_PICTURE)


def _first_without_index(video: Video, moment: int) -> tuple[Shown, Iterator[Shown]]:
    """Reads the packets up to the moment to find where decoding must begin, then opens the file again and decodes from
    there. Reading takes a hundredth of the time of decoding."""
    video.begin_anew()
    passed = _packets_before(video, moment)
    for skipped in sorted({passed, 0}, reverse=True):
        video.begin_anew()
        frames = _with_ends(video, None, skipped)
        first, last = _up_to(frames, moment)
        if first is None or last is None or (first.begins > moment and skipped):
            continue
        _require_not_past(video, moment, last)
        return last, frames
    raise Unreadable(NO_PICTURE)


def _require_not_past(video: Video, moment: int, last: Shown) -> None:
    """Refuses a moment after the last frame. Sound mostly lasts a little longer than the picture: until it ends too, a
    player shows the last frame, and stops there."""
    ends, stated = last.ends, duration(video)
    if stated and stated <= ends + TOLERATED and video.kind != "flv":  # whose duration is too long, with B-frames
        ends = max(ends, stated)
    if moment > ends:
        raise PastTheEnd(_past(video, moment, last))


def _packets_before(video: Video, moment: int) -> int:
    """How many packets come before the last keyframe but one. The last keyframe would be too late, because frames that
    follow it may be shown before it."""
    keyframes = [0]
    for place, packet in enumerate(_in_step(video)):
        stamp = packet.dts if packet.dts is not None else packet.pts
        if stamp is not None and video.time(stamp) > moment:
            break
        if packet.is_keyframe:
            keyframes.append(place)
    return keyframes[-2] if len(keyframes) > 1 else 0


def _in_step(video: Video) -> "Iterator[Packet[VideoStream]]":
    """The packets, as long as their clock runs forwards. A recorder may write several recordings into one stream, each
    of which starts its clock again."""
    last: int | None = None
    for packet in video.packets():
        if video.has_no_index and packet.dts is not None:
            if last is not None and packet.dts < last:
                raise Unreadable("the file's clock jumps back, so its moments are not certain: send its parts alone")
            last = packet.dts
        yield packet


def _up_to(frames: Iterator[Shown], moment: int) -> tuple[Shown | None, Shown | None]:
    """The first frame, and the frame shown at the moment, or the last frame if the moment is past it."""
    first = last = None
    for last in frames:
        first = first or last
        if moment < last.ends:
            break
    return first, last


def _skipping(video: Video, moment: int) -> list[int | None]:
    """The times until which frames that no other frame refers to may be skipped, to be tried in turn; None skips
    none."""
    if codec_name(video.stream) not in _CAN_SKIP:
        return [None]
    return [moment - round(_SURE * SECOND / (video.stream.average_rate or 25)), None]


def _seek(video: Video, start: int | None) -> None:
    try:
        video.seek(start)
    except av.FFmpegError:
        video.reading.check()
        # Matroska cannot seek before its first entry or without an index. It may have read to the end to find that out.
        video.begin_anew()


def _with_ends(video: Video, skip_before: int | None, packets_skipped: int = 0) -> Iterator[Shown]:
    """Each frame with the time of its end, which is the beginning of the next."""
    held: tuple[VideoFrame, int] | None = None
    for frame in _decode(video, skip_before, packets_skipped):
        stamp = frame.pts if frame.pts is not None else frame.dts
        if stamp is None:
            continue
        begins = video.time(stamp)
        if held and begins < held[1]:
            continue
        if held and begins > held[1]:
            yield Shown(held[0], held[1], begins)
        held = frame, begins
    if held:
        yield Shown(held[0], held[1], held[1] + _lasts(video, held[0]))


def _decode(video: Video, skip_before: int | None, packets_skipped: int) -> Iterator[VideoFrame]:
    context = video.stream.codec_context
    for packet in islice(_in_step(video), packets_skipped, None):
        if skip_before is not None:
            early = packet.pts is not None and video.time(packet.pts) < skip_before
            context.skip_frame = "NONREF" if early else "DEFAULT"
        yield from video.decode(packet)
    yield from video.decode(None)


def _lasts(video: Video, frame: VideoFrame) -> int:
    """How long the last frame lasts, as it has no next one: its own duration, or that of an average frame."""
    if frame.duration and video.stream.time_base:
        return max(1, round(frame.duration * video.stream.time_base * SECOND))
    return round(SECOND / (video.stream.average_rate or 25))


# --- frames by number ------------------------------------------------------------------------------------------


def _decoding_times(video: Video) -> list[int] | None:
    """The decoding times of all frames that are shown, if the index has them all, in one ascending row."""
    if not _lists_all_frames(video):
        return None
    times: list[int] = []
    last: int | None = None
    for entry in video.stream.index_entries:
        if last is not None and entry.timestamp < last:
            return None  # the edit list has several parts; the index has frames before each that are only decoded
        last = entry.timestamp
        if not entry.is_discard:
            times.append(last)
    return times


def _lists_all_frames(video: Video) -> bool:
    """Whether the index lists every frame: in an MP4 or MOV that is not fragmented. Matroska's has only some
    keyframes."""
    return video.kind in ("mp4", "mov") and video.stream.frames > 0 and len(video.stream.index_entries) > 0


def _is_shown(video: Video, packet: "Packet[VideoStream]") -> bool:
    """Whether a packet's frame is shown; VP8 has packets that only prepare later frames."""
    return codec_name(video.stream) != "vp8" or bool(memoryview(packet)[0] & 0x10)


# --- words and estimates ---------------------------------------------------------------------------------------


def _expected_frames(video: Video, moment: int, until: int) -> float:
    """An estimate of the frames to decode: from the keyframe before the moment, if the index has it; otherwise of the
    moment alone."""
    entries = video.stream.index_entries
    if _lists_all_frames(video):
        begin = entries.search_timestamp(video.pts(moment))
        end = entries.search_timestamp(video.pts(until), any_frame=True)
        if 0 <= begin <= end:
            return end - begin + 1
    rate = float(video.stream.average_rate or 25)
    return math.ceil((until - moment) / SECOND * min(rate, _ORDINARY_RATE))


def _past(video: Video, moment: int, last: Shown) -> str:
    claimed = _duration_of_stream(video) or duration(video) or 0
    cut = f" (it says {claimed / SECOND:.2f} s: it was cut off)" if claimed > last.ends + SECOND else ""
    return f"the moment {moment / SECOND:g} s is past the end: the video lasts {last.ends / SECOND:.2f} s{cut}"


def _no_frame(video: Video, number: int, count: int) -> str:
    lasts = duration(video)
    long = f" and lasts {lasts / SECOND:.2f} s" if lasts else ""
    return f"frame {number} is past the end: the video has {'1 frame' if count == 1 else f'{count} frames'}{long}"
