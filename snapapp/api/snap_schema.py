"""What clients send about snaps, field by field as their contract has it: names, defaults, ranges, messages. Nothing
here knows the database."""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from snapapp.api.schema import HIGHEST_ID, Asked, Moment, Number, Real, Said, at_most, whole

ATTRIBUTES_MAX = 100
DURATION_MIN, DURATION_MAX = 0.001, 5.0  # seconds
DEFAULT_QUALITY = 3

_LATEST_START = 1e7  # seconds: four months, longer than any file
_LATEST_FRAME = 10**9
_HIGHEST_NUMBER = 99_999_999_999_999.0  # what the old service's numeric(20,6) holds

Nickname = Annotated[str, at_most(120), Said, Field(min_length=1, examples=["ana"])]
Email = Annotated[
    str,
    StringConstraints(max_length=320, pattern=r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$"),
    Field(examples=["ana@fazenda.example"]),
]


def _with_a_host(url: str) -> str:
    """No pattern tells which brackets hold an address, and which letters only look like a slash."""
    try:
        urlsplit(url)
    except ValueError:
        raise ValueError("the host cannot be read") from None
    return url


# No blanks, no control characters, no user or password: what the fetch would refuse anyway, refused at once.
VideoUrl = Annotated[
    str,
    StringConstraints(
        max_length=4096,
        pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://([0-9A-Za-z._~%\u00a1-\uffef-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
        r"([/?#][^\s\x00-\x1f\x7f]*)?$",
    ),
    AfterValidator(_with_a_host),
    Field(description="An http or https URL.", examples=["https://videos.example/brete-7.mp4"]),
]
SubjectId = Annotated[str, at_most(200), Field(examples=["BR-1042"])]
Key = Annotated[str, at_most(120), Said, Field(min_length=1, examples=["peso_referencia"])]
Duration = Annotated[float, Field(ge=DURATION_MIN, le=DURATION_MAX), Real]


# --- the subject ------------------------------------------------------------------------------------------------


class AttributeType(StrEnum):
    STRING = "string"
    NUMBER = "number"


class Attribute(Asked):
    """A value of the subject, of one of two types. It may be empty, as a field of a form may be."""

    key: Key
    type: AttributeType
    string_value: Annotated[str, at_most(1000), Field(examples=["Nelore"])] | None = None
    number_value: Annotated[float, Field(ge=-_HIGHEST_NUMBER, le=_HIGHEST_NUMBER, examples=[412.5]), Real] | None = None

    @model_validator(mode="after")
    def _has_a_value_of_its_type(self) -> Self:
        if self.value is None and not (self.string_value is None and self.number_value is None):
            name = "stringValue" if self.type is AttributeType.STRING else "numberValue"
            raise ValueError(f"a {self.type} has its value in {name}")
        return self

    @property
    def value(self) -> str | float | None:
        return self.string_value if self.type is AttributeType.STRING else self.number_value


def _no_key_twice(given: list[Attribute]) -> list[Attribute]:
    seen: set[str] = set()
    for attribute in given:
        if (key := attribute.key.casefold()) in seen:
            raise ValueError(f"the key {attribute.key[:60]!r} stands there twice")
        seen.add(key)
    return given


Attributes = Annotated[list[Attribute], Field(max_length=ATTRIBUTES_MAX), AfterValidator(_no_key_twice)]


class Subject(Asked):
    """What the snap is about: an id and typed attributes, as the tenant's template has them or not."""

    id: SubjectId | None = Field(None, description="Left out or blank: the snap's own id.")
    attributes: Attributes = Field(default=[], description="Each key once, in any case.")

    @field_validator("id")
    @classmethod
    def _blank_is_nothing(cls, given: str | None) -> str | None:
        return (given or "").strip() or None


# --- the overlay ------------------------------------------------------------------------------------------------


class Mode(StrEnum):
    SUBJECT = "SUBJECT"
    SUBJECT_AND_FRAME = "SUBJECT_AND_FRAME"
    SUBJECT_AND_TIMESTAMP = "SUBJECT_AND_TIMESTAMP"
    SUBJECT_AND_BOTH = "SUBJECT_AND_BOTH"
    FRAME_NUMBER = "FRAME_NUMBER"
    TIMESTAMP = "TIMESTAMP"
    BOTH = "BOTH"


_MEANT = {
    Mode.FRAME_NUMBER: Mode.SUBJECT_AND_FRAME,
    Mode.TIMESTAMP: Mode.SUBJECT_AND_TIMESTAMP,
    Mode.BOTH: Mode.SUBJECT_AND_BOTH,
}


class Position(StrEnum):
    TOP_LEFT = "TOP_LEFT"
    TOP_RIGHT = "TOP_RIGHT"
    BOTTOM_LEFT = "BOTTOM_LEFT"
    BOTTOM_RIGHT = "BOTTOM_RIGHT"


_NAMES = (
    "black|white|gray|grey|silver|red|maroon|orange|yellow|olive|lime|green|teal|cyan|aqua|blue|navy|magenta|fuchsia"
    "|purple|pink|brown"
)
Colour = Annotated[
    str,
    StringConstraints(pattern=rf"^(({_NAMES})|#[0-9A-Fa-f]{{6}})(@(0(\.[0-9]{{1,3}})?|1(\.0{{1,3}})?))?$"),
    Field(description="A name or #RRGGBB, and after an @ how opaque it is."),
]


class Overlay(Asked):
    """Cards with the subject's values, drawn over a copy of each frame; the clean one is kept beside it."""

    enabled: StrictBool = Field(False, description="Drawn only when this is true.")
    mode: Mode = Field(Mode.SUBJECT, description="FRAME_NUMBER, TIMESTAMP and BOTH are other names of SUBJECT_AND_….")
    position: Position = Position.TOP_RIGHT
    font_size: Annotated[int, Field(ge=8, le=200), Number] = 18
    box_color: Colour = "black@0.7"
    font_color: Colour = "white"
    margin: Annotated[int, Field(ge=0, le=500), Number] = 20
    padding: Annotated[int, Field(ge=0, le=200), Number] = 10

    def as_drawn(self) -> dict[str, Any] | None:
        """With every default in it; None: nothing is drawn."""
        if not self.enabled:
            return None
        return {
            "mode": _MEANT.get(self.mode, self.mode).value,
            "position": self.position.value,
            "font_size": self.font_size,
            "box_color": self.box_color,
            "font_color": self.font_color,
            "margin": self.margin,
            "padding": self.padding,
        }


# --- the snap ---------------------------------------------------------------------------------------------------


def _one_of(*names: str) -> dict[str, Any]:
    """For the documentation: at least one of these is given, and is not null."""
    given = ({"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names)
    return {"anyOf": list(given)}


_AGREEING: dict[str, Any] = {
    "allOf": [
        _one_of("videoId", "videoUrl"),
        _one_of("startSeconds", "startFrame"),
        {
            "anyOf": [
                {"properties": {"quality": {"type": "null"}}},
                {"properties": {"format": {"enum": ["jpg", None]}}},
            ]
        },
        {"anyOf": [_one_of("subject"), {"required": ["isDraft"], "properties": {"isDraft": {"const": True}}}]},
    ]
}

EXAMPLE: dict[str, Any] = {
    "videoUrl": "https://videos.example/brete-7.mp4",
    "nickname": "ana",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "startSeconds": 12.48,
    "durationSeconds": 1.0,
    "snapshotDurationSeconds": 2.0,
    "subject": {
        "id": "BR-1042",
        "attributes": [
            {"key": "raca", "type": "string", "stringValue": "Nelore"},
            {"key": "peso_referencia", "type": "number", "numberValue": 412.5},
        ],
    },
    "overlay": {"enabled": True, "mode": "SUBJECT_AND_TIMESTAMP"},
}


class Marked(Asked):
    """A moment of a video, and what is wanted of it."""

    data_filmagem: Moment = Field(description="When it was filmed.")
    start_seconds: Annotated[float, Field(ge=0, le=_LATEST_START), Real] | None = Field(
        None, description="From the beginning of the video.", examples=[12.48]
    )
    start_frame: Annotated[int, Field(ge=0, le=_LATEST_FRAME), Number] | None = Field(
        None, description="The n-th frame as it is shown, from 0. It goes before `startSeconds`.", examples=[374]
    )
    duration_seconds: Duration = Field(description="How long frames are taken.", examples=[1.0])
    snapshot_duration_seconds: Duration | None = Field(
        None, description="How long the clip is; else `durationSeconds`.", examples=[2.0]
    )
    fps: Annotated[int, Field(ge=1, le=10), Number] = Field(5, description="Frames taken of a second.")
    max_width: Annotated[int, Field(ge=320, le=1280), Number] = Field(
        1280, description="Larger pictures are made as small; smaller ones stay as they are."
    )
    format: Literal["jpg", "png"] = "jpg"
    quality: Annotated[int, Field(ge=2, le=10), Number] | None = Field(
        None, description="2 is the best, 10 the smallest; else 3. Of jpg only."
    )
    overlay: Overlay | None = None

    @field_validator("quality")
    @classmethod
    def _only_of_jpg(cls, given: int | None, info: ValidationInfo) -> int | None:
        if given is not None and info.data.get("format") == "png":
            raise ValueError("png has no quality: leave it out, or ask for jpg")
        return given

    @property
    def quality_used(self) -> int | None:
        return None if self.format == "png" else self.quality or DEFAULT_QUALITY

    @property
    def clip_seconds(self) -> float:
        return self.snapshot_duration_seconds or self.duration_seconds

    @property
    def overlay_drawn(self) -> dict[str, Any] | None:
        return self.overlay.as_drawn() if self.overlay else None

    def insist_on_a_start(self) -> None:
        if self.start_seconds is None and self.start_frame is None:
            raise whole("Provide at least one of startSeconds or startFrame")


class SnapRequest(Marked):
    """A moment of a video, and what it shows."""

    model_config = ConfigDict(json_schema_extra={**_AGREEING, "examples": [EXAMPLE]})

    video_id: UUID | None = Field(None, description="A video that is known here. It goes before `videoUrl`.")
    video_url: VideoUrl | None = None
    subject_template_id: Annotated[int, Field(ge=1, le=HIGHEST_ID), Number] | None = Field(
        None,
        description="The template that the subject must follow; else the tenant's default, which requires nothing.",
    )
    nickname: Nickname = Field(description="Who marks the moment.")
    email: Email
    is_draft: StrictBool = Field(False, description="Marked now, described later: see `PATCH …/subject`.")
    subject: Subject | None = Field(
        None, validate_default=True, description="What it shows. Only a draft may go without."
    )

    @field_validator("subject")
    @classmethod
    def _only_drafts_go_without(cls, given: Subject | None, info: ValidationInfo) -> Subject | None:
        if given is None and not info.data.get("is_draft"):
            raise ValueError("Field required, unless isDraft is true")
        return given

    @model_validator(mode="after")
    def _says_where_and_when(self) -> Self:
        if self.video_id is None and self.video_url is None:
            raise whole("Provide at least one of videoId or videoUrl")
        self.insist_on_a_start()
        return self


class NamedSubject(Subject):
    """A subject that has its id from whoever asks: there is no snap whose id it could take."""

    id: Annotated[SubjectId, Said]


class FramesRequest(Marked):
    """An item of the first version's list. It is nobody's, so it knows no tenant's videos or templates, and who asks
    is not kept."""

    video_url: VideoUrl
    subject: NamedSubject

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        self.insist_on_a_start()
        return self


class Correction(Asked):
    """What the subject really is, and who says so. What is left out stays as it was."""

    model_config = ConfigDict(json_schema_extra=_one_of("id", "attributes"))

    id: SubjectId | None = None
    attributes: Attributes | None = Field(None, description="All of them: those that are not named are gone.")
    nickname: Nickname = Field(description="Who says so.")
