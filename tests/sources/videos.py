"""Real videos of any length: a few seconds are encoded once and then repeated, packet by packet."""

import random
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import av
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.video.stream import VideoStream

RATE = 30  # pictures a second
SOUND_RATE = 48_000


def encode(path: Path, *, seconds: int = 4, width: int = 640, height: int = 360, mbit: float = 2) -> None:
    """Noise that drifts, with silence: about as large as it is told to be. Without options the index is at the end."""
    noise = random.Random(1).randbytes(2 * width * height)
    with av.open(str(path), "w") as container:
        pictures = container.add_stream("libx264", rate=RATE, options={"preset": "ultrafast", "g": str(RATE)})
        pictures.width, pictures.height, pictures.pix_fmt = width, height, "yuv420p"
        pictures.bit_rate = int(mbit * 1_000_000)
        sound = container.add_stream("aac", rate=SOUND_RATE)
        for number in range(seconds * RATE):
            _add_picture(container, pictures, noise, number)
        for start in range(0, seconds * SOUND_RATE, 1024):
            _add_sound(container, sound, start)
        container.mux(pictures.encode())
        container.mux(sound.encode())


def _add_picture(container: OutputContainer, stream: VideoStream, noise: bytes, number: int) -> None:
    picture = av.VideoFrame(stream.width, stream.height, "yuv420p")
    for plane in picture.planes:
        plane.update(noise[number * 3 :][: plane.buffer_size])
    picture.pts, picture.time_base = number, Fraction(1, RATE)
    container.mux(stream.encode(picture))


def _add_sound(container: OutputContainer, stream: AudioStream, start: int) -> None:
    frame = av.AudioFrame(format="fltp", layout="stereo", samples=1024)
    for plane in frame.planes:
        plane.update(bytes(plane.buffer_size))
    frame.sample_rate, frame.pts, frame.time_base = SOUND_RATE, start, Fraction(1, SOUND_RATE)
    container.mux(stream.encode(frame))


def repeat(source: Path, target: Path, size: int, *, options: dict[str, str] | None = None) -> None:
    """The source again and again, until there are about so many bytes."""
    times = max(1, round(size / source.stat().st_size))
    with av.open(str(source)) as few, av.open(str(target), "w", options=options or {}) as many:
        seconds = (few.duration or 0) // av.time_base
        streams = {stream.index: many.add_stream_from_template(stream) for stream in few.streams}
        kept = [(packet, bytes(packet)) for packet in few.demux() if _is_within(packet, seconds)]
        for turn in range(times):
            for packet, content in kept:
                copy = av.Packet(content)
                offset = int(turn * seconds / packet.time_base)
                assert packet.pts is not None
                assert packet.dts is not None
                copy.pts, copy.dts = packet.pts + offset, packet.dts + offset
                copy.duration, copy.time_base, copy.is_keyframe = packet.duration, packet.time_base, packet.is_keyframe
                copy.stream = streams[packet.stream.index]
                many.mux(copy)


def _is_within(packet: "av.Packet[Any]", seconds: int) -> bool:
    """Sound ends a little later than pictures do; turns must not overlap."""
    return packet.dts is not None and 0 <= packet.dts * packet.time_base < seconds


def moment(file: BinaryIO | Path, at: float, seconds: float) -> list[tuple[float, bytes]]:
    """The pictures shown from a moment on, each with its time, as decoding gives them."""
    source = str(file) if isinstance(file, Path) else file
    with av.open(source, "r", container_options={"format_whitelist": "mov,matroska"}) as container:
        stream = container.streams.video[0]
        assert stream.time_base
        container.seek(int(at / stream.time_base), stream=stream)
        shown: list[tuple[float, bytes]] = []
        for frame in container.decode(stream):
            assert frame.time is not None
            if frame.time >= at + seconds:
                break
            if frame.time >= at:
                shown.append((frame.time, bytes(frame.planes[0])[:1000]))
        return shown
