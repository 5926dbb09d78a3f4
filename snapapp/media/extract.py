"""Makes frames, clip, poster, thumbnail and quality verdicts of a moment in one decoding pass; or one frame only."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO

from snapapp.media import pictures
from snapapp.media.artefacts import Artefact, Clip, Frame, Making, Schedule
from snapapp.media.container import SECOND, Video, opened
from snapapp.media.moments import TOLERATED, Shown, frames_from, of_frame, of_second
from snapapp.media.options import Limits, Progress, Wanted, unheard
from snapapp.media.output import Output
from snapapp.media.pipeline_thread import PipelineThread
from snapapp.media.probe import Probe, clockwise, described
from snapapp.media.scaling import scaler_for

_STILL_WIDTH = 1280
_AHEAD = 2  # decoded frames that may wait for the second thread; at 4K each takes 12 MB


@dataclass(frozen=True, slots=True)
class Extracted:
    probe: Probe
    resolved_start_seconds: float
    frames: tuple[Frame, ...]
    frame_count: int
    snapshot_video: Clip
    width: int
    height: int
    poster: str
    thumbnail: str
    thumbhash: str
    best_index: int
    black: bool
    frozen: bool
    blurred: bool
    missing_seconds: float
    """How much of the moment lies past the video's end; 0 if all of it was made."""
    damaged_packets: int
    artefacts: tuple[Artefact, ...]
    settings: Wanted


def extract(
    source: BinaryIO,
    wanted: Wanted,
    output: Output,
    progress: Progress = unheard,
    limits: Limits | None = None,
) -> Extracted:
    """Writes the files of a moment, and describes them."""
    with opened(source, limits or Limits()) as video:
        progress(1, "finding the moment")
        schedule = scheduled(wanted, _start(video, wanted))
        frames = frames_from(video, schedule.start, schedule.until)
        first = next(frames)
        with closing(
            Making(video, scaler_for(video, first.frame, wanted.max_width), schedule, wanted, output)
        ) as making:
            ends = _pass_on(first, frames, making, progress)
            missing = schedule.until - ends
            making.complete(repeat_last=missing <= TOLERATED)
            progress(95, "poster and verdicts")
            return _result_of(video, first, making, 0 if missing <= TOLERATED else missing)


def still(source: BinaryIO, at: float) -> bytes:
    """The frame shown at this second, upright, as JPEG."""
    moment = of_second(at)
    with opened(source, Limits()) as video:
        frame = next(frames_from(video, moment, moment)).frame
        scaler = scaler_for(video, frame, _STILL_WIDTH)
        return pictures.jpeg(scaler.image(scaler.picture(frame)))


def scheduled(wanted: Wanted, start: int) -> Schedule:
    count = max(1, math.ceil(round(wanted.duration_seconds * wanted.fps, 6)))
    return Schedule(
        start=start,
        times=tuple(start + round(place * SECOND / wanted.fps) for place in range(count)),
        frames_end=start + of_second(wanted.duration_seconds),
        clip_end=start + of_second(wanted.clip_seconds),
    )


def _start(video: Video, wanted: Wanted) -> int:
    if wanted.start_frame is not None:
        return of_frame(video, wanted.start_frame)
    assert wanted.start_seconds is not None
    return of_second(wanted.start_seconds)


def _pass_on(first: Shown, rest: Iterator[Shown], making: Making, progress: Progress) -> int:
    """Decodes in this thread and passes frames to a second one, until the moment or the video ends; returns that
    time."""
    until, begin = making.schedule.until, making.schedule.start
    with PipelineThread(making.take, _AHEAD) as pipeline:
        shown, reported = first, 0
        while True:
            pipeline.put(shown)
            done = 5 + min(85, 85 * (shown.ends - begin) // (until - begin))
            if done >= reported + 10:
                reported = done
                progress(done, "frames and clip")
            if shown.ends >= until or (following := next(rest, None)) is None:
                break
            shown = following
        pipeline.finish()
    return shown.ends


def _result_of(video: Video, first: Shown, making: Making, missing: int) -> Extracted:
    frames = tuple(making.frames)
    qualities = [frame.quality for frame in frames]
    width, height = making.scaler.size
    return Extracted(
        resolved_start_seconds=making.schedule.start / SECOND,
        frames=frames,
        frame_count=len(frames),
        snapshot_video=making.clip(),
        width=width,
        height=height,
        poster=making.poster(),
        thumbnail=making.thumbnail(),
        thumbhash=making.thumbhash(),
        best_index=next(frame.index for frame in frames if frame.is_best),
        black=all(quality.black for quality in qualities),
        frozen=len(qualities) > 1 and all(quality.frozen for quality in qualities[1:]),
        blurred=all(quality.blurred for quality in qualities),
        missing_seconds=missing / SECOND,
        damaged_packets=video.packets_damaged,
        artefacts=tuple(making.artefacts),
        settings=making.wanted,
        probe=described(video, clockwise(first.frame.rotation)),  # last: it may read damage elsewhere
    )
