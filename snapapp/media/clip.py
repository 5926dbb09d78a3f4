"""A film that every browser plays: H.264, yuv420p, its index in front."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame

from snapapp.media.container import SECOND

_TICKS = 90_000  # a second
_OPTIONS = {
    # As close to the original (SSIM) as veryfast at 23, on footage with and without grain, in half the time; the price
    # is a film up to twice as large, 150 to 300 KB a second. Without the two parameters it takes a tenth longer.
    "preset": "superfast",
    "crf": "26",
    "x264-params": "partitions=none:weightp=0",
    "bf": "0",  # so that decoding and presentation begin at 0 in any player, without an edit list
    "g": "60",
}


class ClipWriter:
    """One film, from its first frame to `close`."""

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction | None, threads: int) -> None:
        self._file = _started(path)
        rate = rate if rate and 1 <= rate <= 240 else Fraction(25)
        self._stream = self._file.add_stream("libx264", rate=rate, options=_OPTIONS | {"threads": str(threads)})
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "yuv420p"
        self._stream.codec_context.time_base = Fraction(1, _TICKS)
        self._tick = -1
        self._lasts: dict[int, int] = {}
        self._closed = False
        self.frame_count = 0
        self.ends = 0

    def add(self, picture: VideoFrame, begins: int, ends: int) -> None:
        tick = _tick(begins)
        if tick <= self._tick:
            return
        if not self.frame_count:
            self._tell_colors(picture)
        picture.pts, picture.time_base = tick, Fraction(1, _TICKS)
        picture.pict_type = 0  # else the encoder copies the source's choice of keyframes
        self._tick, self._lasts[tick] = tick, _tick(ends) - tick
        self.frame_count += 1
        self.ends = ends
        self._mux(picture)

    def close(self) -> None:
        self._mux(None)
        self.abandon()

    def abandon(self) -> None:
        """Whatever is there is left as it is; twice is fine."""
        if not self._closed:
            self._closed = True
            with writing():
                self._file.close()

    def _tell_colors(self, picture: VideoFrame) -> None:
        """Else a player guesses them by the size, and wrongly where a large video became a small film."""
        context = self._stream.codec_context
        context.colorspace, context.color_range = picture.colorspace, picture.color_range
        context.color_primaries, context.color_trc = picture.color_primaries, picture.color_trc

    def _mux(self, picture: VideoFrame | None) -> None:
        with writing():
            for packet in self._stream.encode(picture):
                self._file.mux(self._timed(packet))

    def _timed(self, packet: "Packet[Stream]") -> "Packet[Stream]":
        """The encoder forgets how long frames last; of the last one nobody else would know."""
        if packet.pts is not None:
            packet.duration = self._lasts.pop(packet.pts)
        return packet


@contextmanager
def film(path: Path) -> Iterator[OutputContainer]:
    with writing(), _started(path) as file:
        yield file


@contextmanager
def writing() -> Iterator[None]:
    """What fails here is our disk or our encoder, not the video: it may pass the next time."""
    try:
        yield
    except av.FFmpegError as error:
        raise OSError(error.errno, f"the film cannot be written: {error.strerror}") from error


def _started(path: Path) -> OutputContainer:
    # FFmpeg reopens the file by its name to bring the index to the front, so this is a name and no file object
    return av.open(str(path.resolve()), "w", format="mp4", options={"movflags": "+faststart"})


def _tick(time: int) -> int:
    return math.floor(time * _TICKS / SECOND + 0.5)
