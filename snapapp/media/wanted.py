"""What can be wanted of a video, checked when it is written down."""

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from PIL import ImageColor

from snapapp.media.errors import InvalidWish

CARD_LENGTH = 48  # characters
MAX_CARDS = 100
_COLOR = re.compile(r"(?P<name>#[0-9a-fA-F]{6}|[a-zA-Z]+)(@(?P<alpha>0|1|0?\.\d+|1\.0+))?")


class Format(StrEnum):
    JPG = "jpg"
    PNG = "png"


class Mode(StrEnum):
    SUBJECT = "SUBJECT"
    SUBJECT_AND_FRAME = "SUBJECT_AND_FRAME"
    SUBJECT_AND_TIMESTAMP = "SUBJECT_AND_TIMESTAMP"
    SUBJECT_AND_BOTH = "SUBJECT_AND_BOTH"

    @classmethod
    def _missing_(cls, value: object) -> "Mode | None":
        return cls.__members__.get(f"SUBJECT_AND_{_ALIASES[value]}") if value in _ALIASES else None

    @property
    def shows_frame(self) -> bool:
        return self in (Mode.SUBJECT_AND_FRAME, Mode.SUBJECT_AND_BOTH)

    @property
    def shows_timestamp(self) -> bool:
        return self in (Mode.SUBJECT_AND_TIMESTAMP, Mode.SUBJECT_AND_BOTH)


_ALIASES: dict[object, str] = {"FRAME_NUMBER": "FRAME", "TIMESTAMP": "TIMESTAMP", "BOTH": "BOTH"}


class Position(StrEnum):
    TOP_LEFT = "TOP_LEFT"
    TOP_RIGHT = "TOP_RIGHT"
    BOTTOM_LEFT = "BOTTOM_LEFT"
    BOTTOM_RIGHT = "BOTTOM_RIGHT"


@dataclass(frozen=True, slots=True)
class Overlay:
    """Cards in a corner. Colours are names or #rrggbb, with an opacity after @ where it is not 1."""

    cards: tuple[str, ...]
    mode: Mode = Mode.SUBJECT
    position: Position = Position.TOP_RIGHT
    font_size: int = 18
    box_color: str = "black@0.7"
    font_color: str = "white"
    margin: int = 20
    padding: int = 10

    def __post_init__(self) -> None:
        _within("font size", self.font_size, 8, 200)
        _within("margin", self.margin, 0, 500)
        _within("padding", self.padding, 0, 200)
        if len(self.cards) > MAX_CARDS:
            raise InvalidWish(f"an overlay has at most {MAX_CARDS} cards, not {len(self.cards)}")
        color(self.box_color)
        color(self.font_color)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A moment, what is to be made of it, and how. `start_frame` wins over `start_seconds`."""

    start_seconds: float | None = None
    start_frame: int | None = None
    duration_seconds: float = 1.0
    clip_seconds: float | None = None
    """As `duration_seconds` when not given."""
    fps: float = 5
    max_width: int = 1280
    format: Format = Format.JPG
    quality: int | None = field(default=None)
    """FFmpeg's scale, 2 is best and 10 smallest; 3 when not given, and none for PNG."""
    overlay: Overlay | None = None

    def __post_init__(self) -> None:
        if self.start_frame is not None:
            _within("start frame", self.start_frame, 0, 10**9)
        elif self.start_seconds is None:
            raise InvalidWish("a moment needs startSeconds or startFrame")
        else:
            _within("start", self.start_seconds, 0, 10**7, "s")
        _within("duration", self.duration_seconds, 0.001, 5, "s")
        _within("clip", self.clip_duration, 0.001, 5, "s")
        _within("fps", self.fps, 1, 10)
        _within("width", self.max_width, 320, 1280)
        if self.format == Format.PNG and self.quality is not None:
            raise InvalidWish("quality is for jpg; png loses nothing")
        if self.quality is not None:
            _within("quality", self.quality, 2, 10)

    @property
    def clip_duration(self) -> float:
        return self.duration_seconds if self.clip_seconds is None else self.clip_seconds

    @property
    def jpeg_quality(self) -> int:
        return 3 if self.quality is None else self.quality


def cards(subject_id: str, values: Iterable[str | float | None]) -> tuple[str, ...]:
    """One card per attribute value that says something, the id when none does."""
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
        return f"{value:.10g}"
    kept = "".join(" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in value or "")
    text = unicodedata.normalize("NFC", " ".join(kept.split()))
    return text if len(text) <= CARD_LENGTH else text[: CARD_LENGTH - 1].rstrip() + "…"


def _within(name: str, value: float, least: float, most: float, unit: str = "") -> None:
    if not math.isfinite(value) or not least <= value <= most:
        raise InvalidWish(f"{name} must be from {least:g} to {most:g} {unit}".rstrip() + f", not {value}")
