"""Opens videos so that a hostile one can do no harm: few formats, few codecs, bounded memory, errors for people. FFmpeg
gets a file object and never a name: a name may be a URL or a playlist, which FFmpeg would open.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import av
from av.container import Flags, InputContainer
from av.packet import Packet
from av.stream import Discard, Disposition
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from snapapp.media.errors import (
    MediaError,
    NoVideo,
    OutOfMemory,
    TooLarge,
    Unreadable,
    UnsupportedCodec,
    UnsupportedContainer,
)
from snapapp.media.options import MB, Limits

SECOND = 1_000_000  # microseconds; all times here are whole numbers of them

_CODECS = {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "prores"}
_DECODERS = ",".join(sorted(_CODECS | {"libdav1d"}))
_DAMAGED_PACKETS = 300  # the most in one pass; a cut or a lost block damages only a few
_BUFFER = 64 * 1024

_SEGMENT = b"\x18\x53\x80\x67"  # all of a Matroska file after its first few bytes

_MP4_BOXES = {
    b"ftyp",
    b"moov",
    b"mdat",
    b"free",
    b"skip",
    b"wide",
    b"moof",
    b"styp",
    b"sidx",
    b"pnot",
    b"uuid",
    b"pdin",
}
_IN_ORDER = {"mjpeg", "mpeg4"}  # codecs of AVI whose frames are stored in the order in which they are shown
_WITHOUT_INDEX = {"ts", "flv", "avi"}  # formats without an index, or with one that may be wrong
# An MPEG-TS has its pictures' size with each keyframe only. FFmpeg looks for one in the first 5 s and 5 MB; a recorder
# may begin between two that are further apart, or with sound alone.
_FURTHER = {"analyzeduration": str(60 * SECOND), "probesize": str(64 * MB)}
_DEMUXERS = {"mkv": "matroska", "webm": "matroska", "ts": "mpegts", "flv": "flv", "avi": "avi"}
# every packet of an MPEG-TS begins with this byte; a camera's packets have 4 bytes of time before it
_SYNC, _TS_PACKETS = 0x47, ((0, 188), (4, 192))
# pictures that begin as a video or sound does, and say from their 9th byte on what they are
_PICTURES = {
    b"WEBP": "a WebP picture",
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"hevc", b"hevx"), "a HEIF picture"),
    **dict.fromkeys((b"avif", b"avis"), "an AVIF picture"),
}
_OTHERS = {
    b"RIFF": "a WAV file",
    b"OggS": "an Ogg file",
    b"\x00\x00\x01\xba": "an MPEG program stream",
    b"\x30\x26\xb2\x75": "a Windows Media file",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"ID3": "an MP3 file",
    b"%PDF": "a PDF document",
    b"PK": "a ZIP archive",
    b"<": "a web page or other text",
    b"#EXTM3U": "a playlist",
    b"ffconcat": "a playlist",
}


class SeekTooFar(Exception):
    """A seek would have read too much at once. In a Matroska file without an index, which a recorder did not finish,
    FFmpeg seeks by reading everything before the moment."""


class Reading:
    """The source as FFmpeg reads it. No exception may cross FFmpeg's C code: a failure is kept for `check`, and FFmpeg
    sees the end of the file."""

    def __init__(self, source: BinaryIO, allowance: int) -> None:
        self._source = source
        self._allowance = allowance
        self._left = allowance
        self._place = 0
        self.size = source.seek(0, os.SEEK_END)
        self.failure: BaseException | None = None

    def allow(self, allowance: int) -> None:
        """Sets how many bytes may be read until the next call."""
        self._allowance = self._left = allowance

    def read(self, size: int) -> bytes:
        if self.failure:
            return b""
        try:
            self._source.seek(self._place)
            data = bytes(self._source.read(size))
            # PyAV copies the data, however long, into a buffer of the size it asked for
            assert len(data) <= size, f"the source returned {len(data)} bytes when asked for {size}"
            self._place += len(data)
            self._take(len(data))
        except BaseException as failure:  # noqa: BLE001 - check() raises it
            self.failure = failure
            return b""
        return data

    def head(self, size: int) -> bytes:
        """The first bytes, wherever FFmpeg reads."""
        place, self._place = self._place, 0
        data = self.read(size)
        self._place = place
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def begin_anew(self) -> None:
        self._place, self.failure = 0, None

    def check(self) -> None:
        if self.failure:
            raise self.failure

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge(f"the video has a part of more than {self._allowance // MB} MB, which is not read at once")


@dataclass(slots=True)
class Video:
    """An open file and its video stream. Decoded pixels are counted, so that the work stays within its limit."""

    container: InputContainer
    stream: VideoStream
    kind: str
    reading: Reading
    limits: Limits
    begins: int
    """Second 0, on the stream's own clock."""
    pixels_left: int
    packets_damaged: int = field(default=0)

    @property
    def has_no_index(self) -> bool:
        """Whether frames can only be found by reading from the beginning."""
        return self.kind in _WITHOUT_INDEX

    @property
    def is_cut_segment(self) -> bool:
        """Whether it is a Matroska file of which the end is missing. One that was recorded live states no size."""
        if self.kind not in ("mkv", "webm"):
            return False
        head = self.reading.head(600)
        segment = head.find(_SEGMENT, 0, 500)  # its size follows
        if segment < 0:
            return False
        begins, size = _size_of_element(head, segment + len(_SEGMENT))
        return size is not None and begins + size > self.reading.size

    def begin_anew(self) -> None:
        """Opens the file again, at its first packet. Demuxers without an index differ in what seeking to the beginning
        does."""
        self.container.close()
        self.reading.begin_anew()
        self.container = _container(self.reading, self.kind, self.limits)
        stream = video_stream(self.container)
        assert stream
        self.stream = stream
        _restrain(stream.codec_context, self.limits)

    def time(self, pts: int) -> int:
        """The time of a timestamp of the stream, since second 0."""
        base = self.stream.time_base
        assert base
        return round(pts * SECOND * base) - self.begins

    def pts(self, time: int) -> int:
        """The last tick of the stream's clock that is not after this time."""
        base = self.stream.time_base
        assert base
        return int((time + self.begins) // (SECOND * base))

    def seek(self, time: int | None) -> None:
        """Seeks to a keyframe at or before this time, as far as the container knows; None is the beginning. Raises
        SeekTooFar if FFmpeg had to read too much for it."""
        self.reading.allow(self.limits.max_header_bytes)
        target = self.pts(time) if time is not None else min(0, self.stream.start_time or 0)
        try:
            self.container.seek(target, stream=self.stream)
        finally:
            if isinstance(self.reading.failure, TooLarge):
                raise SeekTooFar from self.reading.failure
        self.reading.check()

    def packets(self) -> "Iterator[Packet[VideoStream]]":
        """The packets from here to the end, or to where the file breaks off."""
        packets = self.container.demux()
        while True:
            self.reading.allow(self.limits.max_packet_bytes)
            try:
                packet = next(packets)
            except StopIteration:
                break
            except IndexError:  # a packet of a stream that begins here, which PyAV does not know
                packets = self.container.demux()
                continue
            except av.FFmpegError as error:
                self.reading.check()
                self._count_damage(error)
                break
            self.reading.check()
            if packet.stream_index == self.stream.index and packet.size:
                yield cast("Packet[VideoStream]", packet)

    def decode(self, packet: "Packet[VideoStream] | None") -> list[VideoFrame]:
        """The frames that the decoder has ready after this packet; None flushes the decoder."""
        try:
            frames = self.stream.codec_context.decode(packet)
        except av.MemoryError as error:
            raise OutOfMemory("there was not enough memory to decode this video") from error
        except av.FFmpegError as error:
            self._count_damage(error)
            return []
        for frame in frames:
            self.pixels_left -= frame.width * frame.height
        if self.pixels_left < 0:
            raise self._too_much()
        return frames

    def afford(self, frames: float) -> None:
        """Refuses work that is known to be too much before any of it is done."""
        if frames * self.stream.codec_context.width * self.stream.codec_context.height > self.pixels_left:
            raise self._too_much()

    def close(self) -> None:
        self.container.close()

    def _too_much(self) -> TooLarge:
        context = self.stream.codec_context
        return TooLarge(
            f"too many frames of {context.width}×{context.height} would have to be decoded for this moment;"
            f" a smaller copy of the video, or one with more keyframes, will do"
        )

    def _count_damage(self, error: av.FFmpegError) -> None:
        self.packets_damaged += 1
        if self.packets_damaged > _DAMAGED_PACKETS:
            raise Unreadable(f"the video is damaged: {_words(error)}") from error


@contextmanager
def opened(source: BinaryIO, limits: Limits) -> Iterator[Video]:
    """The video of a file, after its format, codec and size were checked: it can be decoded."""
    with opened_unchecked(source, limits) as (container, kind, reading):
        stream = video_stream(container)
        if stream is None:
            raise NoVideo("the file has no video stream, only " + _stream_types(container))
        if problem := reason_against(stream, kind, limits):
            raise problem
        with in_words(reading), closing(prepare_video(container, stream, kind, reading, limits)) as video:
            yield video


@contextmanager
def opened_unchecked(source: BinaryIO, limits: Limits) -> Iterator[tuple[InputContainer, str, Reading]]:
    """The container, whatever is in it; only to look at its description."""
    reading = Reading(source, limits.max_header_bytes)
    kind = _kind(reading)
    with in_words(reading):
        container = _container(reading, kind, limits)
    with container:
        yield container, kind, reading


def _container(reading: Reading, kind: str, limits: Limits) -> InputContainer:
    container = _open(reading, kind, limits, {})
    stream = video_stream(container)
    if kind == "ts" and stream and codec_name(stream) in _CODECS and not stream.codec_context.width:
        container.close()
        reading.begin_anew()
        container = _open(reading, kind, limits, _FURTHER)
    return container


def _open(reading: Reading, kind: str, limits: Limits, look: dict[str, str]) -> InputContainer:
    reading.allow(limits.max_header_bytes)
    container = av.open(
        reading,
        "r",
        container_options={"format_whitelist": _DEMUXERS.get(kind, "mov"), **look},
        # FFmpeg decodes while it looks for what the header does not say; a 16k × 16k file took 621 MB there
        options={"max_pixels": str(limits.max_pixels), "codec_whitelist": _DECODERS, "threads": "1"},
        metadata_errors="replace",
        buffer_size=_BUFFER,
    )
    # to invent missing timestamps FFmpeg would keep packets in memory, perhaps all of them
    container.flags &= ~cast(int, Flags.gen_pts.value)
    video = video_stream(container)
    for stream in container.streams:
        if stream is not video:
            # of a recording that broke off the sound may be missing where the pictures are there
            stream.discard = Discard.all
    return container


def prepare_video(container: InputContainer, stream: VideoStream, kind: str, reading: Reading, limits: Limits) -> Video:
    _restrain(stream.codec_context, limits)
    return Video(container, stream, kind, reading, limits, container.start_time or 0, limits.max_decoded_pixels)


def _restrain(context: VideoCodecContext, limits: Limits) -> None:
    context.thread_count = limits.threads
    context.thread_type = "AUTO"
    # options given when the file was opened do not reach its decoders
    context.options = {"max_pixels": str(limits.max_pixels), "codec_whitelist": _DECODERS}


def video_stream(container: InputContainer) -> VideoStream | None:
    """The stream of moving pictures that players show: the first that the file calls its default, or else the first.
    A cover picture is a video stream too."""
    moving = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    defaults = (stream for stream in moving if stream.disposition & Disposition.default)
    return next(defaults, moving[0] if moving else None)


def reason_against(stream: VideoStream, kind: str, limits: Limits) -> MediaError | None:
    """Why this stream cannot be decoded; None if it can."""
    context, most = stream.codec_context, f"{limits.max_pixels / 1e6:.1f} million pixels"
    if codec_name(stream) not in _CODECS:
        name = codec_name(stream) or "something we do not know"
        return UnsupportedCodec(f"the video is coded as {name}; we read {', '.join(sorted(_CODECS))}")
    if not context.width or not context.height:
        # for some codecs FFmpeg drops a size beyond the limit
        return Unreadable(f"its picture has no size that can be read: it is damaged, or larger than {most}")
    if context.width * context.height > limits.max_pixels:
        return TooLarge(f"the picture has {context.width}×{context.height} pixels; we read up to {most}")
    if kind == "avi" and (context.has_b_frames or codec_name(stream) not in _IN_ORDER):
        # AVI keeps only the order of decoding; FFmpeg guesses the times, one frame off for H.264 without B-frames
        return UnsupportedContainer(
            f"an AVI file does not say when frames coded as {codec_name(stream)} are shown; make an MP4 or MKV of it"
        )
    return None


def codec_name(stream: VideoStream) -> str | None:
    context: VideoCodecContext | None = stream.codec_context  # None if FFmpeg has no decoder
    return context.codec.canonical_name if context else None


@contextmanager
def in_words(reading: Reading) -> Iterator[None]:
    """Turns FFmpeg's errors into ours. An error that the source raised comes first, because it is the cause."""
    try:
        yield
    except av.FFmpegError as error:
        reading.check()
        if isinstance(error, MemoryError):
            raise OutOfMemory("the video asks for more memory than there is; it may be damaged") from error
        raise Unreadable(f"the video cannot be read; it is damaged, or was cut off: {_words(error)}") from error
    except MemoryError as error:
        raise OutOfMemory("there was not enough memory for this video") from error
    reading.check()


def _kind(reading: Reading) -> str:
    """The format, by the first bytes; a name or a Content-Type proves nothing."""
    head = reading.head(600)
    reading.check()
    if not head:
        raise Unreadable("the file is empty")
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "webm" if b"webm" in head[:64] else "mkv"
    if head.startswith(b"FLV\x01"):
        return "flv"
    if head.startswith(b"RIFF") and head[8:12] == b"AVI ":
        return "avi"
    if any(head[first : first + 3 * size : size] == bytes([_SYNC] * 3) for first, size in _TS_PACKETS):
        return "ts"
    picture = _PICTURES.get(head[8:12])
    if head[4:8] in _MP4_BOXES and not picture:
        return "mp4" if head[4:8] in (b"ftyp", b"styp", b"sidx", b"moof") and head[8:10] != b"qt" else "mov"
    what = picture or next((name for start, name in _OTHERS.items() if head.startswith(start)), "something else")
    raise UnsupportedContainer(f"this is {what}; we read MP4, MOV, MKV, WebM, MPEG-TS, FLV and AVI")


def _size_of_element(data: bytes, place: int) -> tuple[int, int | None]:
    """Where an element of Matroska begins whose size is written here, and the size. It takes as many more bytes as its
    first byte begins with zeros; if all other bits are ones, it is unknown."""
    length = 9 - data[place].bit_length()
    most = (1 << 7 * length) - 1
    size = int.from_bytes(data[place : place + length]) & most
    return place + length, None if size == most else size


def _stream_types(container: InputContainer) -> str:
    return " and ".join(sorted({stream.type for stream in container.streams})) or "nothing"


def _words(error: av.FFmpegError) -> str:
    return (error.strerror or "unknown error").lower()
