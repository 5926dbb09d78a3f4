"""Makes the files of a moment from its frames, as they are decoded."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import PurePath
from typing import Any

from PIL import Image

from snapapp.media import pictures, quality
from snapapp.media.clip import ClipWriter
from snapapp.media.container import SECOND, Video
from snapapp.media.moments import Shown
from snapapp.media.options import Wanted
from snapapp.media.output import Output
from snapapp.media.overlay import CardPainter
from snapapp.media.quality import Quality
from snapapp.media.scaling import FrameScaler

CLIP = "snapshot.mp4"
POSTER = "poster.jpg"
THUMBNAIL = "thumbnail.jpg"
_BRIEF = SECOND // 25  # length of a clip frame at the video's very end, where the frame would have none
_TYPES = {".jpg": "image/jpeg", ".png": "image/png", ".mp4": "video/mp4"}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a moment's frames are due, and when frames and clip end, in microseconds since second 0."""

    start: int
    times: tuple[int, ...]
    frames_end: int
    clip_end: int

    @property
    def until(self) -> int:
        return max(self.frames_end, self.clip_end)


@dataclass(frozen=True, slots=True)
class Artefact:
    file_name: str
    content_type: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Frame:
    index: int
    timestamp_seconds: float
    """When the video shows the frame; not the time that was asked for."""
    file_name: str
    clean_file_name: str | None
    """The same frame without the overlay; None where there is no overlay."""
    quality: Quality
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Clip:
    file_name: str
    duration_seconds: float
    width: int
    height: int
    frame_count: int


@dataclass(frozen=True, slots=True)
class _Still:
    """A frame of the video as a picture. It may stand for several of our frames, if the video shows it for long."""

    begins: int
    image: Image.Image
    encoded: bytes
    grey: Image.Image
    quality: Quality


class Making:
    """The files of one moment in the making. One thread calls `take`; another calls everything else, before and
    after."""

    def __init__(self, video: Video, scaler: FrameScaler, schedule: Schedule, wanted: Wanted, output: Output) -> None:
        self.schedule = schedule
        self.scaler = scaler
        self.wanted = wanted
        self.frames: list[Frame] = []
        self.artefacts: list[Artefact] = []
        self._output = output
        self._clip_file = output.film(CLIP)
        self._painter = CardPainter(wanted.overlay) if wanted.overlay else None
        self._writer = ClipWriter(self._clip_file, scaler.size, video.stream.average_rate, video.limits.threads)
        self._seen: Shown | None = None
        self._last: _Still | None = None
        self._best: tuple[float, _Still, int] | None = None

    def take(self, shown: Shown) -> None:
        self._seen = shown
        # the first frame always, because the video may begin after the clip's end
        in_clip = shown.begins < self.schedule.clip_end or not self._writer.frame_count
        due = self._due(shown.ends)
        if not in_clip and not due:
            return
        picture = self.scaler.picture(shown.frame)
        still = self._still(shown, self.scaler.image(picture)) if due else None
        if in_clip:
            # the first frame began before the moment, or after it if the video begins later: in the clip it begins at 0
            begins = shown.begins - self.schedule.start if self._writer.frame_count else 0
            ends = min(shown.ends, self.schedule.clip_end) - self.schedule.start
            self._writer.add(picture, begins, ends if ends > begins else begins + _BRIEF)
        for _ in range(due):
            self._frame(still)

    def complete(self, *, repeat_last: bool) -> None:
        """Finishes the files after the last frame. With `repeat_last` the last frame stands for all frames that are
        still due; if there is no frame at all, it becomes the only one."""
        due = len(self.schedule.times) - len(self.frames) if repeat_last else int(not self.frames)
        if due and self._seen:
            still = self._still(self._seen, self.scaler.image(self.scaler.picture(self._seen.frame)))
            for _ in range(due):
                self._frame(still)
        self._writer.close()
        self._clip_file.seek(0)
        self._note(CLIP, self._clip_file.read())
        assert self._best
        best = self._best[2] - 1
        self.frames[best] = replace(self.frames[best], is_best=True)

    def close(self) -> None:
        """Closes the clip. Errors here are ignored, because an earlier error is the one to report."""
        with suppress(OSError):
            self._writer.abandon()
        self._clip_file.close()

    def clip(self) -> Clip:
        width, height = self.scaler.size
        return Clip(CLIP, self._writer.ends / SECOND, width, height, self._writer.frame_count)

    def poster(self) -> str:
        assert self._best
        still = self._best[1]
        return self._write(POSTER, pictures.jpeg(still.image) if self.wanted.quality is None else still.encoded)

    def thumbnail(self) -> str:
        assert self._best
        return self._write(THUMBNAIL, pictures.jpeg(pictures.thumbnail(self._best[1].image)))

    def thumbhash(self) -> str:
        assert self._best
        return pictures.thumbhash(self._best[1].image)

    def _due(self, ends: int) -> int:
        """How many of the remaining frames are due before `ends`."""
        return sum(time < ends for time in self.schedule.times[len(self.frames) :])

    def _still(self, shown: Shown, image: Image.Image) -> _Still:
        if self._last and self._last.begins == shown.begins:
            return self._last
        grey = quality.grey(image)
        measured = quality.measured(grey, self._last.grey if self._last else None)
        self._last = _Still(shown.begins, image, self._encode(image), grey, measured)
        return self._last

    def _frame(self, still: _Still | None) -> None:
        assert still
        index = len(self.frames) + 1
        name, clean = f"frame_{index:05}.{self.wanted.suffix}", None
        if self._painter:
            clean = self._write(f"clean_{index:05}.{self.wanted.suffix}", still.encoded)
            self._write(name, self._encode(self._painter.on(still.image, index, still.begins)))
        else:
            self._write(name, still.encoded)
        self.frames.append(Frame(index, still.begins / SECOND, name, clean, still.quality))
        worth = -1.0 if still.quality.black else still.quality.sharpness
        if self._best is None or worth > self._best[0]:
            self._best = worth, still, index

    def _encode(self, image: Image.Image) -> bytes:
        if self.wanted.quality is None:
            return pictures.png(image)
        return pictures.jpeg(image, self.wanted.quality)

    def _write(self, name: str, data: bytes) -> str:
        self._output.write(name, data)
        self._note(name, data)
        return name

    def _note(self, name: str, data: bytes) -> None:
        kind = _TYPES[PurePath(name).suffix]
        self.artefacts.append(Artefact(name, kind, len(data), hashlib.sha256(data).hexdigest()))


def as_json(value: object) -> Any:
    """Results as plain JSON values, with their Python names."""
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return value
