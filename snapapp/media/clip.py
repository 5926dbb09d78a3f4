"""Writes clips that every browser plays: MP4 with H.264, yuv420p, and the index in front."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import BinaryIO

import av
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame

from snapapp.media.container import SECOND

_TICKS = 90_000  # a second
_BUFFER = 256 * 1024
_OPTIONS = {
    # As close to the original (SSIM) as veryfast at 23, on footage with and without grain, in half the time. The clip
    # is up to twice as large, 150 to 300 KB a second. Without the two x264-params encoding takes a tenth longer.
    "preset": "superfast",
    "crf": "26",
    "x264-params": "partitions=none:weightp=0",
    "bf": "0",  # so that decoding and presentation begin at 0 in any player, without an edit list
    "g": "60",
}


class ClipWriter:
    """Writes one clip, from its first frame to `close`."""

    def __init__(self, file: BinaryIO, size: tuple[int, int], rate: Fraction | None, threads: int) -> None:
        self._container = _open_output(file)
        rate = rate if rate and 1 <= rate <= 240 else Fraction(25)
        self._stream = self._container.add_stream("libx264", rate=rate, options=_OPTIONS | {"threads": str(threads)})
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
        picture.pict_type = 0  # otherwise the encoder would copy the source's choice of keyframes
        self._tick, self._lasts[tick] = tick, _tick(ends) - tick
        self.frame_count += 1
        self.ends = ends
        self._mux(picture)

    def close(self) -> None:
        self._mux(None)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file as it is. Calling it twice does no harm."""
        if not self._closed:
            self._closed = True
            with writing():
                self._container.close()

    def _tell_colors(self, picture: VideoFrame) -> None:
        """Writes the colour space into the clip. Without it a player guesses by the size, wrongly if a large video
        became a small clip."""
        context = self._stream.codec_context
        context.colorspace, context.color_range = picture.colorspace, picture.color_range
        context.color_primaries, context.color_trc = picture.color_primaries, picture.color_trc

    def _mux(self, picture: VideoFrame | None) -> None:
        with writing():
            for packet in self._stream.encode(picture):
                self._container.mux(self._with_duration(packet))

    def _with_duration(self, packet: "Packet[Stream]") -> "Packet[Stream]":
        """Sets how long a frame lasts, which the encoder forgets; the length of the last frame would be lost."""
        if packet.pts is not None:
            packet.duration = self._lasts.pop(packet.pts)
        return packet


@contextmanager
def film(file: BinaryIO) -> Iterator[OutputContainer]:
    with writing(), _open_output(file) as container:
        yield container


@contextmanager
def writing() -> Iterator[None]:
    """Turns errors of FFmpeg into OSError: what fails while writing is our disk or encoder, not the video, and may work
    the next time."""
    try:
        yield
    except (av.FFmpegError, OSError) as error:
        raise OSError(error.errno, f"the film cannot be written: {error.strerror}") from error


def _open_output(file: BinaryIO) -> OutputContainer:
    # to move the index to the front FFmpeg opens the file again, by name unless io_open is given
    return av.open(
        _SharedFile(file),
        "w",
        format="mp4",
        options={"movflags": "+faststart"},
        io_open=lambda *_: _SharedFile(file),
        buffer_size=_BUFFER,
    )


class _SharedFile:
    """A file object with a position of its own in a file that several objects share."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0

    def read(self, size: int) -> bytes:
        self._file.seek(self._at)
        data = self._file.read(size)
        self._at += len(data)
        return data

    def write(self, data: bytes) -> int:
        self._file.seek(self._at)
        written = 0
        while written < len(data):  # a disk that fills up takes only a part of the last write
            written += self._file.write(data[written:])
        self._at += written
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = self._at if whence == os.SEEK_CUR else 0
        self._at = self._file.seek(base + offset, os.SEEK_END if whence == os.SEEK_END else os.SEEK_SET)
        return self._at

    def tell(self) -> int:
        return self._at


def _tick(time: int) -> int:
    return math.floor(time * _TICKS / SECOND + 0.5)
