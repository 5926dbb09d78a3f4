"""What can be asked of a video, how much of a machine it may take, and how progress is reported."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from PIL import ImageColor

from snapapp.media.errors import InvalidWish

Progress = Callable[[int, str], None]  # called with a percentage and a step; an exception that it raises ends the work

MB = 1024 * 1024
CARD_LENGTH = 48  # characters
_COLOR = re.compile(r"(?P<name>#[0-9a-fA-F]{6}|[a-zA-Z]+)(@(?P<alpha>0|1|0?\.\d+|1\.0+))?")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a machine one video may take."""

    max_pixels: int = 4096 * 4096
    """Of one frame. The decoder keeps up to 20 frames, each of 24 MB at this size and 8 bits."""

    max_decoded_pixels: int = 20_000_000_000
    """Of all frames decoded for one moment: 2,400 at 4K, about half a minute on two cores."""

    max_preview_pixels: int = 500_000_000_000
    """Of a whole video that is made playable: more than two hours of 1080p at 30 frames a second."""

    max_header_bytes: int = 256 * MB
    """Read before the first packet; the index of a day at 60 frames a second has about 100 MB."""

    max_packet_bytes: int = 64 * MB
    """Read from one packet to the next, so that a packet that claims the whole file cannot fill the memory."""

    threads: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Text cards in a corner of the picture. A colour is a name or #rrggbb, with an opacity after @ if it is not 1."""

    cards: tuple[str, ...]
    shows_frame: bool
    shows_time: bool
    is_left: bool
    is_top: bool
    font_size: int
    box_color: str
    font_color: str
    margin: int
    padding: int

    def __post_init__(self) -> None:
        color(self.box_color)
        color(self.font_color)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A moment, what is to be made of it, and how. `start_frame` wins over `start_seconds`. How long a moment may be is
    a rule of the product, and not checked here."""

    start_seconds: float | None
    start_frame: int | None
    duration_seconds: float
    clip_seconds: float
    fps: float
    max_width: int
    quality: int | None
    """Of JPEGs on FFmpeg's scale, where 2 is best and 10 smallest; None makes PNGs, which are lossless."""
    overlay: Overlay | None

    @property
    def suffix(self) -> str:
        return "png" if self.quality is None else "jpg"


def unheard(*_: object) -> None:
    """A Progress that does nothing."""


def cards(subject_id: str, values: Iterable[str | float | None]) -> tuple[str, ...]:
    """One card for each value that is not empty; the id if all are empty."""
    texts = [_card(value) for value in values]
    return tuple(text for text in texts if text) or (_card(subject_id),)


def color(text: str) -> tuple[int, int, int, int]:
    """Red, green, blue and opacity, each to 255."""
    match = _COLOR.fullmatch(text)
    if match is None or not (match["name"].startswith("#") or match["name"].lower() in ImageColor.colormap):
        raise InvalidWish(f"{text!r} is no colour: write a name or #rrggbb, then perhaps @0.7 for opacity")
    red, green, blue = ImageColor.getrgb(match["name"])[:3]
    return red, green, blue, round(255 * float(match["alpha"] or 1))


def _card(value: str | float | None) -> str:
    if isinstance(value, float | int):
        return f"{value:.15g}"  # every digit that a double certainly holds; fewer would round a long ear tag
    printable = "".join(" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in value or "")
    text = unicodedata.normalize("NFC", " ".join(printable.split()))
    return text if len(text) <= CARD_LENGTH else text[: CARD_LENGTH - 1].rstrip() + "…"
