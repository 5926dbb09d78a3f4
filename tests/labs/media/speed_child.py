"""What the speed's measurement does in processes of their own: make the source, and do our work again and again."""

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import av
from av.video.frame import VideoFrame
from PIL import Image, ImageChops

from snapapp import media
from tests.media.material import Folder, frame_of, make_overlay, make_wanted, numbered

FPS, SECONDS, UNIQUE = 30, 60, 4  # so many seconds are encoded, and repeated
X264 = {"preset": "veryfast", "g": str(FPS)}


def make(target: Path, height: int) -> None:
    """As a phone films: a keyframe every second, B-frames, grain, about 12 Mbit/s at 1080p."""
    size = (height * 16 // 9, height)
    grain = [Image.effect_noise(size, 12).convert("RGB") for _ in range(3)]
    with av.open(str(target), "w", options={"movflags": "+faststart"}) as file:
        stream = file.add_stream("libx264", rate=FPS, options=X264)
        stream.bit_rate = 12_000_000 * (height // 1080) ** 2
        stream.width, stream.height = size
        frames = (_grainy(numbered(number, size), grain[number % 3]) for number in range(FPS * UNIQUE))
        packets = [packet for frame in frames for packet in stream.encode(frame)] + stream.encode()
        for turn in range(SECONDS // UNIQUE):
            for packet in packets:
                copy = av.Packet(bytes(packet))
                shift = round(turn * UNIQUE / packet.time_base)
                assert packet.pts is not None
                assert packet.dts is not None
                copy.pts, copy.dts, copy.time_base = packet.pts + shift, packet.dts + shift, packet.time_base
                copy.duration, copy.is_keyframe, copy.stream = packet.duration, packet.is_keyframe, stream
                file.mux(copy)


def _grainy(image: Image.Image, grain: Image.Image) -> VideoFrame:
    return frame_of(ImageChops.overlay(image, grain))


def work(source: Path, moment: float) -> None:
    overlay = make_overlay(("São João 1020", "Nelore", "412.5"))
    wanted = make_wanted(start_seconds=moment, duration_seconds=1, clip_seconds=2, overlay=overlay)
    for _ in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            began, cpu = perf_counter(), process_time()
            with source.open("rb") as file:
                media.extract(file, wanted, Folder(Path(folder)))
            measured = {"seconds": perf_counter() - began, "cpu": process_time() - cpu, "peak_mb": _peak_mb()}
        print(json.dumps(measured), flush=True)


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        work(Path(sys.argv[2]), float(sys.argv[3]))
