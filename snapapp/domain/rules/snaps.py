"""The limits, names and defaults of a snap, as the HTTP contract has them. The API's schema, the domain and the
processing all read them here, so that each stands once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from PIL import ImageColor

from snapapp.domain.rules import validation
from snapapp.errors import Invalid


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `least` to `most`, both included. Where both are ints, only whole numbers are allowed."""

    least: int | float
    most: int | float

    def flaw(self, value: object) -> str | None:
        if isinstance(self.least, int) and isinstance(self.most, int):
            return validation.whole(value, self.least, self.most)
        return validation.number(value, self.least, self.most)


# --- who marks what ---------------------------------------------------------------------------------------------

NICKNAME_LONGEST, EMAIL_LONGEST = 120, 320
VIDEO_URL_LONGEST = 4096
SUBJECT_ID_LONGEST, ATTRIBUTE_KEY_LONGEST, ATTRIBUTE_TEXT_LONGEST = 200, 120, 1000
MOST_ATTRIBUTES = 100
ATTRIBUTE_NUMBER = Range(-99_999_999_999_999.0, 99_999_999_999_999.0)  # the range of the old service's numeric(20,6)


# --- a moment, its frames and its clip --------------------------------------------------------------------------


class Format(StrEnum):
    JPG = "jpg"
    PNG = "png"


START_SECONDS = Range(0.0, 10_000_000.0)  # four months, longer than any file
START_FRAME = Range(0, 1_000_000_000)
DURATION_SECONDS = Range(0.001, 5.0)  # for the frames, and for the clip
INSTANT_SECONDS = 1  # a snap with a longer part is an interval
FPS, DEFAULT_FPS = Range(1, 10), 5
MAX_WIDTH, DEFAULT_MAX_WIDTH = Range(320, 1280), 1280
DEFAULT_FORMAT = Format.JPG
QUALITY, DEFAULT_QUALITY = Range(2, 10), 3  # FFmpeg's scale, for jpg only: 2 looks best, 10 is smallest


WANTED = (
    *("start_seconds", "start_frame", "duration_seconds", "clip_seconds"),
    *("fps", "max_width", "format", "quality"),
)
NO_START = "Provide at least one of startSeconds or startFrame"


def insist(wanted: Mapping[str, Any], overlay: Mapping[str, Any] | None) -> None:
    if wanted["start_seconds"] is None and wanted["start_frame"] is None:
        raise Invalid(message=NO_START)
    validation.insist(_flaws(wanted) | (_flaws_of_overlay(overlay) if overlay else {}))


def _flaws(wanted: Mapping[str, Any]) -> dict[str, str | None]:
    """What is wrong with the values of a moment, by the contract's field names. `wanted` has the keys of `WANTED`."""
    start, frame = wanted["start_seconds"], wanted["start_frame"]
    return {
        "startSeconds": None if start is None else START_SECONDS.flaw(start),
        "startFrame": None if frame is None else START_FRAME.flaw(frame),
        "durationSeconds": DURATION_SECONDS.flaw(wanted["duration_seconds"]),
        "snapshotDurationSeconds": DURATION_SECONDS.flaw(wanted["clip_seconds"]),
        "fps": FPS.flaw(wanted["fps"]),
        "maxWidth": MAX_WIDTH.flaw(wanted["max_width"]),
        "format": _flaw_of_name(Format, wanted["format"]),
        "quality": _flaw_of_quality(wanted["format"], wanted["quality"]),
    }


def _flaw_of_name(known: type[StrEnum], name: object) -> str | None:
    return None if name in tuple(known) else f"must be one of {', '.join(known)}"


def _flaw_of_quality(form: object, quality: object) -> str | None:
    if form == Format.PNG:
        return None if quality is None else "is not for png"
    return QUALITY.flaw(quality)


# --- the overlay ------------------------------------------------------------------------------------------------


class Mode(StrEnum):
    """What the overlay shows beside the subject's values."""

    SUBJECT = "SUBJECT"
    SUBJECT_AND_FRAME = "SUBJECT_AND_FRAME"
    SUBJECT_AND_TIMESTAMP = "SUBJECT_AND_TIMESTAMP"
    SUBJECT_AND_BOTH = "SUBJECT_AND_BOTH"

    @classmethod
    def _missing_(cls, value: object) -> "Mode | None":
        return MODE_ALIASES.get(value)


MODE_ALIASES: Mapping[object, Mode] = {
    "FRAME_NUMBER": Mode.SUBJECT_AND_FRAME,
    "TIMESTAMP": Mode.SUBJECT_AND_TIMESTAMP,
    "BOTH": Mode.SUBJECT_AND_BOTH,
}


class Position(StrEnum):
    TOP_LEFT = "TOP_LEFT"
    TOP_RIGHT = "TOP_RIGHT"
    BOTTOM_LEFT = "BOTTOM_LEFT"
    BOTTOM_RIGHT = "BOTTOM_RIGHT"


DEFAULT_MODE, DEFAULT_POSITION = Mode.SUBJECT, Position.TOP_RIGHT
FONT_SIZE, DEFAULT_FONT_SIZE = Range(8, 200), 18
MARGIN, DEFAULT_MARGIN = Range(0, 500), 20
PADDING, DEFAULT_PADDING = Range(0, 200), 10
DEFAULT_BOX_COLOR, DEFAULT_FONT_COLOR = "black@0.7", "white"
COLOR = re.compile(  # FFmpeg's notation
    rf"(?P<name>{'|'.join(ImageColor.colormap)}|(#|0x)[0-9a-f]{{6}})(?P<opacity>@(0(\.[0-9]{{1,3}})?|1(\.0{{1,3}})?))?",
    re.IGNORECASE,
)

DEFAULT_OVERLAY: Mapping[str, Any] = {
    "mode": DEFAULT_MODE.value,
    "position": DEFAULT_POSITION.value,
    "font_size": DEFAULT_FONT_SIZE,
    "box_color": DEFAULT_BOX_COLOR,
    "font_color": DEFAULT_FONT_COLOR,
    "margin": DEFAULT_MARGIN,
    "padding": DEFAULT_PADDING,
}


def _flaws_of_overlay(drawn: Mapping[str, Any]) -> dict[str, str | None]:
    """What is wrong with an overlay in which every default is filled in. Colours are checked when they are drawn,
    because rows of the old service hold colours that this contract refuses."""
    return {
        "overlay.mode": _flaw_of_name(Mode, drawn["mode"]),
        "overlay.position": _flaw_of_name(Position, drawn["position"]),
        "overlay.fontSize": FONT_SIZE.flaw(drawn["font_size"]),
        "overlay.margin": MARGIN.flaw(drawn["margin"]),
        "overlay.padding": PADDING.flaw(drawn["padding"]),
    }
