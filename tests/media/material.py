"""Small videos of every kind, made on the spot. Each frame carries its number as a row of black and white cells, so
that a picture says which frame it is, whatever was done to it on the way."""

import hashlib
import io
import math
import os
import random
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, cast

import av
from av.audio.frame import AudioFrame
from av.container import OutputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image, ImageDraw

from snapapp.media import Overlay, Wanted

os.environ.setdefault("SVT_LOG", "1")  # its encoder speaks to stderr otherwise

TICKS = 90_000
BITS = 10
_SOURCE = Path(__file__).read_bytes()
TURNS = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}


# One thread each: of several, VP8's spin while they wait for each other, which took ten times the processor.
X264 = {"preset": "ultrafast", "bf": "2", "g": "25", "threads": "1"}
PYRAMID = {"preset": "superfast", "bf": "5", "b-pyramid": "normal", "b_strategy": "0", "g": "40", "threads": "1"}
OPEN_GOP = PYRAMID | {"x264-params": "open-gop=1:keyint=24:min-keyint=24"}
VP8 = {"deadline": "realtime", "cpu-used": "8", "g": "24", "threads": "1"}
X265 = {"preset": "ultrafast", "x265-params": "log-level=none:keyint=20:bframes=3:pools=none:frame-threads=1"}


@dataclass(frozen=True)
class Recipe:
    """How to make a video; times are ticks of 1/90,000 s, one per frame."""

    suffix: str = ".mp4"
    codec: str = "libx264"
    size: tuple[int, int] = (320, 180)
    times: Sequence[int] = tuple(range(0, 75 * 3600, 3600))
    options: dict[str, str] = field(default_factory=lambda: dict(X264))
    clock: int = TICKS
    movflags: str = ""
    muxing: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    pix_fmt: str = "yuv420p"
    rotation: int = 0
    """Clockwise: what a player has to turn it by."""
    aspect: Fraction | None = None
    audio_from: float | None = None
    audio_until: float | None = None
    """By default until the last frame begins."""
    shift: int = 0
    """Added to every time of the finished packets: what becomes negative is hidden by an edit list."""
    hidden: frozenset[int] = frozenset()
    """Packets of VP8 whose frames are made to be used and not shown."""
    paint: Callable[[int, tuple[int, int]], Image.Image] | None = None


def irregular(count: int = 75, seed: int = 5) -> tuple[int, ...]:
    """As a phone writes them in bad light: from 8 to 180 ms apart."""
    chance, time, times = random.Random(seed), 0, []
    for _ in range(count):
        times.append(time)
        time += chance.choice((750, 1500, 3003, 3600, 7200, 16_200))
    return tuple(times)


GOOD: dict[str, Recipe] = {
    "plain": Recipe(options=X264 | {"bf": "0"}),
    "faststart": Recipe(movflags="+faststart"),
    "b_frames": Recipe(options=PYRAMID),
    "open_gop": Recipe(options=OPEN_GOP),
    "one_gop": Recipe(options=PYRAMID | {"g": "1000"}),
    "irregular": Recipe(times=irregular(), options=PYRAMID),
    "rotated": Recipe(rotation=90),
    "upside_down": Recipe(rotation=180),
    "rotated_left": Recipe(rotation=270, options=PYRAMID),
    "edit_list": Recipe(options=PYRAMID, shift=-50_000),
    "negative": Recipe(options=PYRAMID, movflags="+negative_cts_offsets"),
    "late": Recipe(times=tuple(range(60_000, 60_000 + 75 * 3600, 3600)), audio_from=0.0),
    "later_alone": Recipe(suffix=".mkv", times=tuple(range(117_000, 117_000 + 75 * 3600, 3600))),
    "with_sound": Recipe(audio_from=0.0, options=PYRAMID),
    "fragmented": Recipe(movflags="+frag_keyframe+empty_moov+default_base_moof", options=PYRAMID),
    "mov": Recipe(suffix=".mov", options=PYRAMID),
    "mkv": Recipe(suffix=".mkv", options=PYRAMID, times=irregular()),
    "mkv_without_index": Recipe(suffix=".mkv", options=PYRAMID, muxing={"live": "1"}),
    "mkv_of_one_gop": Recipe(
        suffix=".mkv", options=X264 | {"g": "1000"}, times=tuple(range(1800, 1800 + 75 * 3600, 3600)), audio_from=0.0
    ),
    "webm_vp9": Recipe(".webm", "libvpx-vp9", options=VP8 | {"g": "20"}),
    "webm_vp8": Recipe(".webm", "libvpx", options=VP8),
    "webm_vp8_hidden": Recipe(".webm", "libvpx", options=VP8, hidden=frozenset({7, 30, 31, 60})),
    "hevc": Recipe(codec="libx265", options=X265),
    "hevc_10_bit": Recipe(codec="libx265", options=X265, pix_fmt="yuv420p10le"),
    "h264_10_bit": Recipe(pix_fmt="yuv420p10le"),
    "h264_444_odd": Recipe(pix_fmt="yuv444p", size=(321, 181)),
    "av1": Recipe(codec="libsvtav1", clock=25, options={"preset": "12", "g": "20", "svtav1-params": "lp=1"}),
    "mpeg4": Recipe(codec="mpeg4", clock=25, options={"bf": "2", "g": "12", "threads": "1"}),
    "mjpeg_odd": Recipe(".mov", "mjpeg", size=(321, 181), pix_fmt="yuvj444p", options={"q:v": "3"}),
    "prores": Recipe(".mov", "prores_aw", pix_fmt="yuv422p10le", options={"profile": "0", "threads": "1"}),
    "ts": Recipe(".ts", options=PYRAMID),
    "ts_open_gop": Recipe(".ts", options=OPEN_GOP, audio_from=0.0),
    "ts_irregular": Recipe(".ts", options=PYRAMID, times=irregular()),
    "ts_one_gop": Recipe(".ts", options=PYRAMID | {"g": "1000"}),
    "ts_hevc": Recipe(".ts", "libx265", options=X265),
    "ts_of_a_camera": Recipe(".m2ts", options=PYRAMID, audio_from=0.0),
    "flv": Recipe(".flv", options=PYRAMID, audio_from=0.0),
    "flv_irregular": Recipe(".flv", options=PYRAMID, times=tuple(tick // 90 * 90 for tick in irregular())),
    "avi_mjpeg": Recipe(".avi", "mjpeg", clock=25, pix_fmt="yuvj420p", options={"q:v": "3"}),
    "avi_mpeg4": Recipe(".avi", "mpeg4", clock=25, options={"bf": "0", "g": "12", "threads": "1"}),
    "wide_pixels": Recipe(aspect=Fraction(4, 3)),
    "fast": Recipe(times=tuple(range(0, 240 * 375, 375)), options=PYRAMID),
    "slow": Recipe(times=tuple(range(0, 8 * 45_000, 45_000))),
    "one_frame": Recipe(times=(0,)),
}


def make(recipe: Recipe, path: Path) -> Path:
    """Encoded once, where there is a folder to keep it in."""
    folder = os.environ.get("TESTS_KEEP_VIDEOS_IN")  # which tests/conftest.py sets
    if folder is None or recipe.paint:
        return _made(recipe, path)
    kept = Path(folder) / f"{_key(recipe)}{path.suffix}"
    if not kept.exists():
        begun = kept.with_name(f"{os.getpid()}-{kept.name}")
        _made(recipe, begun).replace(kept)
    shutil.copyfile(kept, path)
    return path


def _key(recipe: Recipe) -> str:
    """Of the recipe and of all that decides what becomes of it."""
    return hashlib.sha256(b"\n".join([_SOURCE, av.__version__.encode(), repr(recipe).encode()])).hexdigest()


def _made(recipe: Recipe, path: Path) -> Path:
    try:
        with av.open(str(path), "w", options=_muxing(recipe)) as file:
            file.metadata.update(recipe.metadata)
            _encode(file, recipe)
    finally:  # as root, libsvtav1 makes its caller a real-time thread, before which everything else stands still
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return path


def numbered(number: int, size: tuple[int, int]) -> Image.Image:
    """A landscape that moves with the number, and the number in the middle."""
    width, height = size
    image = Image.new("RGB", size, (40 + number % 50, 90, 120))
    draw = ImageDraw.Draw(image)
    for row in range(0, height, 12):
        draw.line((0, row + number % 12, width, row), fill=(200, 180 - row % 100, 60))
    cell = width / (BITS + 4)
    for bit in range(-1, BITS + 1):
        lit = 255 if bit >= 0 and number >> bit & 1 else 0
        left, top = (bit + 2) * cell, height * 0.4
        draw.rectangle((left, top, left + cell - 1, height * 0.6), fill=(lit, lit, lit))
    return image


def frame_of(image: Image.Image) -> VideoFrame:
    return cast(VideoFrame, VideoFrame.from_image(image))  # type: ignore[no-untyped-call]


def _encode(file: OutputContainer, recipe: Recipe) -> None:
    stream = cast(VideoStream, file.add_stream(recipe.codec, rate=25, options=recipe.options))
    upright = recipe.size if recipe.rotation % 180 == 0 else (recipe.size[1], recipe.size[0])
    stream.width, stream.height = recipe.size
    stream.pix_fmt = recipe.pix_fmt
    stream.codec_context.time_base = Fraction(1, recipe.clock)
    if recipe.aspect:
        stream.codec_context.sample_aspect_ratio = recipe.aspect
    if recipe.rotation:
        stream.set_display_rotation(-recipe.rotation)
    sound = file.add_stream("aac", rate=48_000) if recipe.audio_from is not None else None
    file.start_encoding()
    if sound:
        _encode_silence(file, sound, recipe)
    for number, time in enumerate(recipe.times):
        image = (recipe.paint or numbered)(number, upright)
        frame = frame_of(image.transpose(TURNS[recipe.rotation]) if recipe.rotation else image)
        frame.pts, frame.time_base = time, Fraction(1, TICKS)
        packets = stream.encode(frame)
        _mux(file, [_hidden(packet) for packet in packets] if number in recipe.hidden else packets, recipe.shift)
    _mux(file, stream.encode(), recipe.shift)


def _encode_silence(file: OutputContainer, sound: Any, recipe: Recipe) -> None:
    assert recipe.audio_from is not None
    seconds = recipe.times[-1] / TICKS if recipe.audio_until is None else recipe.audio_until
    for start in range(round(recipe.audio_from * 48_000), round(seconds * 48_000), 1024):
        frame = AudioFrame(format="fltp", layout="stereo", samples=1024)
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        frame.pts, frame.sample_rate, frame.time_base = start, 48_000, Fraction(1, 48_000)
        _mux(file, sound.encode(frame), 0)
    _mux(file, sound.encode(), 0)


def _mux(file: OutputContainer, packets: Sequence[Any], shift: int) -> None:
    for packet in packets:
        if shift:
            ticks = round(shift / TICKS / packet.time_base)
            packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
        file.mux(packet)


def _hidden(packet: Any) -> Any:
    data = bytes(packet)
    copy = av.Packet(bytes([data[0] & ~0x10]) + data[1:])
    copy.pts, copy.dts, copy.time_base, copy.duration = packet.pts, packet.dts, packet.time_base, packet.duration
    copy.stream = packet.stream
    return copy


def _muxing(recipe: Recipe) -> dict[str, str]:
    flags = {"movflags": recipe.movflags} if recipe.movflags else {}
    return recipe.muxing | flags


def together(path: Path, *films: Path, default: int) -> Path:
    """One file with the pictures of several, of which it calls one its default."""
    with av.open(str(path), "w") as file, ExitStack() as stack:
        sources = [stack.enter_context(av.open(str(film))) for film in films]
        streams = [file.add_stream_from_template(source.streams.video[0]) for source in sources]
        for number, stream in enumerate(streams):
            stream.disposition = Disposition.default if number == default else Disposition(0)
        for source, stream in zip(sources, streams, strict=True):
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    file.mux(packet)
    return path


# --- what is no good -------------------------------------------------------------------------------------------


def sound_only(path: Path) -> Path:
    with av.open(str(path), "w") as file:
        sound = file.add_stream("aac", rate=48_000)
        _encode_silence(file, sound, Recipe(times=(0, 90_000), audio_from=0.0))
    return path


def subtitled_picture(path: Path) -> Path:
    """Sound and a cover: a picture, but none that moves."""
    cover = io.BytesIO()
    numbered(7, (64, 64)).save(cover, "JPEG")
    with av.open(str(path), "w") as file:
        sound = file.add_stream("aac", rate=48_000)
        picture = file.add_mux_stream("mjpeg", width=64, height=64)
        picture.disposition = Disposition.attached_pic
        picture.time_base = Fraction(1, TICKS)
        file.start_encoding()
        packet = av.Packet(cover.getvalue())
        packet.stream, packet.pts, packet.dts, packet.time_base = picture, 0, 0, Fraction(1, TICKS)
        file.mux(packet)
        _encode_silence(file, sound, Recipe(times=(0, 90_000), audio_from=0.0))
    return path


def giant(path: Path, side: int = 16_384) -> Path:
    """A small picture that says it has this many pixels each way, and the container says so as well."""
    is_vp9 = path.suffix == ".webm"
    data = _small_vp9(side) if is_vp9 else _small_jpeg(side)
    with av.open(str(path), "w") as file:
        stream = file.add_mux_stream("vp9" if is_vp9 else "mjpeg", width=side, height=side)
        stream.time_base = Fraction(1, TICKS)
        for number in range(3):
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, TICKS), True
            packet.pts = packet.dts = number * 3600
            file.mux(packet)
    return path


def _small_jpeg(side: int) -> bytes:
    small = io.BytesIO()
    Image.new("RGB", (64, 64), "green").save(small, "JPEG")
    data = bytearray(small.getvalue())
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", side, side)
    return bytes(data)


def _small_vp9(side: int) -> bytes:
    """A keyframe of VP9 has its size, less one, from the 37th bit on."""
    encoder = av.CodecContext.create("libvpx-vp9", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 64, 64, "yuv420p"
    encoder.time_base = Fraction(1, 25)
    packets = [*encoder.encode(VideoFrame(64, 64, "yuv420p")), *encoder.encode()]
    bits = int.from_bytes(bytes(packets[0])[:9], "big")
    size = (side - 1) << 16 | (side - 1)
    bits = bits >> 36 << 36 | size << 4 | bits & 0xF
    return bits.to_bytes(9, "big") + bytes(packets[0])[9:]


def patched(data: bytes, box: bytes, offset: int, value: bytes, *, which: int = 0) -> bytes:
    """Bytes written over, so many after the name of the n-th box of this kind."""
    place = -1
    for _ in range(which + 1):
        place = data.index(box, place + 1)
    place += len(box) + offset
    return data[:place] + value + data[place + len(value) :]


def edited(data: bytes, *parts: tuple[float, float]) -> bytes:
    """An MP4 with its index at the end, cut by an edit list into parts: each begins at a second and lasts so many."""
    moov, trak, tkhd = (data.index(name) - 4 for name in (b"moov", b"trak", b"tkhd"))
    place = tkhd + struct.unpack_from(">I", data, tkhd)[0]
    rest = place + (struct.unpack_from(">I", data, place)[0] if data[place + 4 :].startswith(b"edts") else 0)
    ticks = struct.unpack_from(">I", data, data.index(b"mdhd") + 16)[0]
    entries = b"".join(struct.pack(">IiI", round(lasts * 1000), round(at * ticks), 1 << 16) for at, lasts in parts)
    elst = struct.pack(">I4sII", 16 + len(entries), b"elst", 0, len(parts)) + entries
    data = data[:place] + struct.pack(">I4s", 8 + len(elst), b"edts") + elst + data[rest:]
    for box in (moov, trak):
        size = struct.unpack_from(">I", data, box)[0] + 8 + len(elst) - (rest - place)
        data = data[:box] + struct.pack(">I", size) + data[box + 4 :]
    return data


# --- the reference ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    number: int
    """The one painted on it."""
    begins: float
    ends: float


def number_on(image: Image.Image) -> int:
    """Of an upright picture of any size."""
    cell, middle, number = image.width / (BITS + 4), image.height * 0.5, 0
    band = image.crop((0, round(middle - 3), image.width, round(middle + 3))).convert("L")
    for bit in range(BITS):
        left = (bit + 2) * cell
        inner = band.crop((round(left + cell * 0.3), 0, round(left + cell * 0.7), band.height)).tobytes()
        number |= (sum(inner) / len(inner) > 127) << bit
    return number


def decoded_whole(path: Path, rotation: int = 0) -> list[Interval]:
    """Every frame from the first to the last, by the plainest means there are; second 0 is the file's start."""
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        second_0 = Fraction(file.start_time or 0, 1_000_000)
        seen = [(frame.pts, frame.duration, _upright(frame, rotation)) for frame in file.decode(stream)]
        base, rate = stream.time_base, stream.average_rate
    assert base
    seen.sort(key=lambda one: one[0] or 0)
    begins = [float((pts or 0) * base - second_0) for pts, _, _ in seen]
    last = float(seen[-1][1] * base if seen[-1][1] else 1 / (rate or 25))
    ends = [*begins[1:], begins[-1] + last]
    images = [number_on(image) for _, _, image in seen]
    return [Interval(*one) for one in zip(images, begins, ends, strict=True)]


def shown_at(intervals: Sequence[Interval], moment: float) -> Interval:
    """Before the first frame the first one is what there is."""
    return next((one for one in intervals if moment < one.ends - 5e-7), intervals[-1])


def moments(intervals: Sequence[Interval], count: int, seed: int) -> Iterator[float]:
    """Anywhere, and every other one exactly where a frame begins."""
    chance = random.Random(seed)
    for number in range(count):
        exact = chance.choice(intervals).begins
        yield max(0.0, round(exact if number % 2 else chance.uniform(0, math.nextafter(intervals[-1].ends, 0)), 6))


def _upright(frame: VideoFrame, rotation: int) -> Image.Image:
    image: Image.Image = frame.to_image()  # type: ignore[no-untyped-call]
    back = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}
    return image.transpose(back[rotation]) if rotation else image


# --- what is wanted of them --------------------------------------------------------------------------------------


def make_wanted(start_seconds: float | None = None, **changes: Any) -> Wanted:
    usual: dict[str, Any] = {
        "start_frame": None,
        "duration_seconds": 1.0,
        "clip_seconds": changes.get("duration_seconds", 1.0),
        "fps": 5,
        "max_width": 1280,
        "quality": 3,
        "overlay": None,
    }
    return Wanted(start_seconds=start_seconds, **usual | changes)


def make_overlay(cards: tuple[str, ...], **changes: Any) -> Overlay:
    usual: dict[str, Any] = {
        "shows_frame": False,
        "shows_time": False,
        "is_left": False,
        "is_top": True,
        "font_size": 18,
        "box_color": "black@0.7",
        "font_color": "white",
        "margin": 20,
        "padding": 10,
    }
    return Overlay(cards=cards, **usual | changes)


@dataclass(frozen=True, slots=True)
class Folder:
    """Takes the files of a moment."""

    path: Path

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def film(self, name: str) -> BinaryIO:
        return (self.path / name).open("w+b", buffering=0)
