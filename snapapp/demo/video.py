"""The demo's video: eight animals walk through a gate, each with its number on its flank, and a board beside the gate
shows the animal that passes. The video is painted and encoded here, so the demo needs no download. Its bytes are the
same every time, because it uses one thread, no clock and no random numbers."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import av
from PIL import Image, ImageDraw, ImageFont

from snapapp import media
from snapapp.demo.animals import HERD, Animal

SIZE = WIDTH, HEIGHT = 640, 360
RATE, SECONDS = 25, 20
GATE = WIDTH // 2
FILMED = datetime(2026, 3, 1, 11, 15, tzinfo=UTC)  # written into the file as a camera does

_SPEED = 96  # pixels a second
_GROUND = 306
_DOORWAY = (GATE - 104, 84, GATE + 105, 331)  # all of the foreground that an animal can be behind
_FINE = 3  # animals are painted so many times larger, for smooth edges
_FONT = Path(media.__file__).parent / "fonts" / "DejaVuSans-Bold.ttf"
_ENCODING = {"preset": "veryfast", "crf": "21", "g": "50", "threads": "1"}


def film(target: Path, progress: Callable[[int, str], None]) -> None:
    """Writes the video; takes a core about three seconds."""
    with av.open(str(target), "w", options={"movflags": "+faststart"}) as file:
        file.metadata["creation_time"] = FILMED.isoformat()
        stream = file.add_stream("libx264", rate=RATE, options=_ENCODING)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        painter = _Painter()
        for number in range(RATE * SECONDS):
            if number % RATE == 0:
                progress(number // (RATE * SECONDS // 100), "painting the herd")
            frame = av.VideoFrame.from_image(painter.frame(number))  # type: ignore[no-untyped-call]
            file.mux(stream.encode(frame))
        file.mux(stream.encode())


class _Painter:
    """Paints the frames; keeps the parts that are the same in every frame."""

    def __init__(self) -> None:
        self._small, self._large = _font(13), _font(22)
        self._behind, gate = _yard(), _gate()
        self._behind.paste(gate, (0, 0), gate)
        self._before = gate.crop(_DOORWAY)
        self._walking = {animal.tag: [_animal(animal, step) for step in range(4)] for animal in HERD}

    def frame(self, number: int) -> Image.Image:
        seconds = number / RATE
        picture = self._behind.copy()
        for animal in HERD:
            place = GATE + _SPEED * (seconds - animal.passes)
            if -120 < place < WIDTH + 120:
                walking = self._walking[animal.tag][int(place / 14) % 4]
                picture.paste(walking, (round(place) - walking.width // 2, _GROUND - walking.height), walking)
        picture.paste(self._before, _DOORWAY, self._before)
        self._board(ImageDraw.Draw(picture), number)
        return picture

    def _board(self, draw: ImageDraw.ImageDraw, number: int) -> None:
        seconds = number / RATE
        draw.text((16, 12), f"BRETE 7   {seconds // 60:02.0f}:{seconds % 60:05.2f}", font=self._large, fill="white")
        draw.text((16, 42), f"frame {number:04}", font=self._small, fill="#cfd8dc")
        here = next((animal for animal in HERD if abs(seconds - animal.passes) < 0.7), None)
        lamp = "#43d17a" if here else "#8a3a34"
        draw.ellipse((GATE - 7, 66, GATE + 7, 80), fill=lamp, outline="#101618")
        draw.rounded_rectangle((WIDTH - 206, 10, WIDTH - 14, 64), radius=6, fill="#101618")
        if here:
            draw.text((WIDTH - 194, 12), here.tag, font=self._large, fill="#ffd54a")
            draw.text((WIDTH - 194, 41), f"{here.breed}  {here.weight:.1f} kg", font=self._small, fill="white")
        else:
            draw.text((WIDTH - 194, 26), "next, please", font=self._small, fill="#90a4ae")


def _yard() -> Image.Image:
    picture = Image.new("RGB", SIZE)
    draw = ImageDraw.Draw(picture)
    for row in range(HEIGHT):
        sky, earth = row / 170, (row - 170) / (HEIGHT - 170)
        if row < 170:
            color = (round(62 + 70 * sky), round(108 + 60 * sky), round(138 + 38 * sky))
        else:
            color = (round(166 - 60 * earth), round(132 - 50 * earth), round(88 - 36 * earth))
        draw.line((0, row, WIDTH, row), fill=color)
    draw.polygon(
        [(0, 170), (110, 132), (240, 160), (380, 124), (520, 158), (640, 136), (640, 176), (0, 176)], "#4f7347"
    )
    for post in range(-20, WIDTH, 64):
        draw.rectangle((post, 150, post + 7, 262), fill="#5d4632")
    for rail in (168, 204, 240):
        draw.rectangle((0, rail, WIDTH, rail + 6), fill="#74583f")
    return picture


def _gate() -> Image.Image:
    """The foreground, which covers the herd."""
    picture = Image.new("RGBA", SIZE)
    draw = ImageDraw.Draw(picture)
    for side in (-104, 96):
        draw.rectangle((GATE + side, 84, GATE + side + 8, 330), fill="#39474e")
    draw.rectangle((GATE - 104, 84, GATE + 104, 94), fill="#39474e")
    draw.rectangle((0, 322, WIDTH, 329), fill="#6b5139")
    draw.rectangle((0, 0, WIDTH, 8), fill="#101618")
    return picture


def _animal(animal: Animal, step: int) -> Image.Image:
    """The animal from the side, at one of the four steps of its walk."""
    picture = Image.new("RGBA", (190 * _FINE, 128 * _FINE))
    draw = ImageDraw.Draw(picture)
    dark = _darker(animal.hide)

    def box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
        return left * _FINE, top * _FINE, right * _FINE, bottom * _FINE

    swing = (6, 0, -6, 0)[step]
    for hip, way, hide in ((48, -1, dark), (118, 1, dark), (36, 1, animal.hide), (128, -1, animal.hide)):
        foot = hip + way * swing
        legs = [(hip, 70), (hip + 13, 70), (foot + 11, 126), (foot, 126)]
        draw.polygon([(x * _FINE, y * _FINE) for x, y in legs], fill=hide)
        draw.rectangle(box(foot, 121, foot + 11, 127), fill="#2b2522")
    draw.line(box(26, 44, 17, 92), fill=dark, width=4 * _FINE)
    draw.ellipse(box(96, 16, 132, 56), fill=animal.hide)  # the hump
    draw.rounded_rectangle(box(22, 30, 148, 92), radius=28 * _FINE, fill=animal.hide)
    draw.polygon([(x * _FINE, y * _FINE) for x, y in ((132, 40), (158, 24), (164, 52), (140, 84))], fill=animal.hide)
    nod = (0, 1, 2, 1)[step]
    draw.rounded_rectangle(box(148, 20 + nod, 186, 50 + nod), radius=11 * _FINE, fill=animal.hide)
    draw.ellipse(box(176, 33 + nod, 189, 50 + nod), fill=dark)
    draw.ellipse(box(165, 27 + nod, 170, 32 + nod), fill="#14100e")
    draw.polygon([(x * _FINE, (y + nod) * _FINE) for x, y in ((150, 22), (138, 18), (141, 31), (152, 32))], fill=dark)
    draw.rectangle(box(137, 28 + nod, 148, 41 + nod), fill="#ffd54a")  # the ear tag
    draw.rounded_rectangle(box(50, 44, 122, 76), radius=6 * _FINE, fill="#fffdf5", outline="#14100e", width=_FINE)
    draw.text((86 * _FINE, 60 * _FINE), animal.tag[3:], font=_font(23 * _FINE), fill="#14100e", anchor="mm")
    return picture.resize((190, 128), Image.Resampling.LANCZOS)


def _darker(color: str) -> tuple[int, int, int]:
    red, green, blue = (round(int(color[place : place + 2], 16) * 0.72) for place in (1, 3, 5))
    return red, green, blue


def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_FONT), size, layout_engine=ImageFont.Layout.BASIC)
