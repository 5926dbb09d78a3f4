"""The request bodies about snaps, with the names, defaults, ranges and messages of the contract. The schema describes
the strict form; values are read as leniently as by the old service (`lenient`). Nothing here uses the database."""

import re
from enum import StrEnum
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from snapapp.api.http.schema import HIGHEST_ID, Finite, NotText, Stripped, at_most, whole
from snapapp.api.product.lenient import AsNumber, AsText, Filmed, LenientBody, LowerCase, Switch, UpperCase, as_switch
from snapapp.domain.rules import snaps as rules
from snapapp.domain.rules.snaps import Range
from snapapp.sources import SourceRefused, guard


def _within(limits: Range, **more: Any) -> Any:
    return Field(ge=limits.least, le=limits.most, **more)


# --- who marks what ---------------------------------------------------------------------------------------------

Nickname = Annotated[str, at_most(rules.NICKNAME_LONGEST), Stripped, Field(min_length=1, examples=["ana"]), AsText]
_EMAIL = re.compile(r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$")


def _email(text: str) -> str:
    if not _EMAIL.fullmatch(text):
        raise ValueError("Input should be an e-mail address")
    return text


# Patterns of what people type are described, not enforced: whoever mistypes it is told in words.
Email = Annotated[
    str,
    StringConstraints(max_length=rules.EMAIL_LONGEST),
    AfterValidator(_email),
    Field(examples=["ana@fazenda.example"], json_schema_extra={"pattern": _EMAIL.pattern}),
    LowerCase,
]


def _fetchable(url: str) -> str:
    """Refuses what fetching would refuse later, in its words. Where the host leads is only known then."""
    if " " in url:
        raise ValueError("The URL holds a blank; write it as %20.")
    try:
        guard.source_url(url)
    except SourceRefused as error:
        raise ValueError(str(error)) from None
    return url


Url = Annotated[
    str,
    StringConstraints(max_length=rules.VIDEO_URL_LONGEST),
    AfterValidator(_fetchable),
    Field(
        json_schema_extra={"pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://[^@/?#\s\x00-\x1f\x7f]+([/?#][^\s\x00-\x1f\x7f]*)?$"}
    ),
]
VideoUrl = Annotated[Url, Field(description="An http or https URL.", examples=["https://videos.example/brete-7.mp4"])]
SubjectId = Annotated[str, at_most(rules.SUBJECT_ID_LONGEST), Field(examples=["BR-1042"]), AsText]
Key = Annotated[
    str, at_most(rules.ATTRIBUTE_KEY_LONGEST), Stripped, Field(min_length=1, examples=["peso_referencia"]), AsText
]
AttributeText = Annotated[str, at_most(rules.ATTRIBUTE_TEXT_LONGEST), Field(examples=["Nelore"]), AsText]
Duration = Annotated[float, _within(rules.DURATION_SECONDS), Finite, AsNumber]


# --- the subject ------------------------------------------------------------------------------------------------


class AttributeType(StrEnum):
    STRING = "string"
    NUMBER = "number"


class Attribute(LenientBody):
    """An attribute of the subject, a text or a number. Its value may be missing, like an empty field of a form."""

    key: Key
    type: Annotated[AttributeType, LowerCase]
    string_value: AttributeText | None = None
    number_value: Annotated[float, _within(rules.ATTRIBUTE_NUMBER, examples=[412.5]), Finite, AsNumber] | None = None

    @model_validator(mode="before")
    @classmethod
    def _blank_type_is_that_of_the_value(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("type"), str) or given["type"].strip():
            return given
        return given | {"type": "string" if given.get("numberValue") in (None, "") else "number"}

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


Attributes = Annotated[list[Attribute], Field(max_length=rules.MOST_ATTRIBUTES), AfterValidator(_no_key_twice)]


class Subject(LenientBody):
    """What the snap shows: an id and typed attributes. Attributes that the template does not name are allowed."""

    id: SubjectId | None = Field(None, description="If it is missing or blank: the snap's own id.")
    attributes: Attributes = Field(default=[], description="Each key once, in any case.")


# --- the overlay ------------------------------------------------------------------------------------------------


Mode = Annotated[
    rules.Mode,
    WithJsonSchema({"type": "string", "enum": [*rules.Mode, *map(str, rules.MODE_ALIASES)]}, mode="validation"),
    UpperCase,
]


def _as_drawn(color: str) -> str:
    if not rules.COLOR.fullmatch(color):
        raise ValueError("Input should be a colour's name or #RRGGBB, and perhaps an opacity as in @0.7")
    return color.lower().replace("0x", "#")


Colour = Annotated[
    str,
    Field(description="A name or #RRGGBB, perhaps with an opacity after an @.", examples=["black@0.7", "#ffcc00"]),
    AfterValidator(_as_drawn),
]


class Overlay(LenientBody):
    """Cards with the subject's values, drawn on a copy of each frame. The clean frame is kept too."""

    enabled: Switch = Field(False, description="Whether it is drawn; if not, its other fields are ignored.")
    mode: Mode = Field(
        rules.DEFAULT_MODE, description="FRAME_NUMBER, TIMESTAMP and BOTH are other names of SUBJECT_AND_…."
    )
    position: Annotated[rules.Position, UpperCase] = rules.DEFAULT_POSITION
    font_size: Annotated[int, _within(rules.FONT_SIZE), NotText, AsNumber] = rules.DEFAULT_FONT_SIZE
    box_color: Colour = rules.DEFAULT_BOX_COLOR
    font_color: Colour = rules.DEFAULT_FONT_COLOR
    margin: Annotated[int, _within(rules.MARGIN), NotText, AsNumber] = rules.DEFAULT_MARGIN
    padding: Annotated[int, _within(rules.PADDING), NotText, AsNumber] = rules.DEFAULT_PADDING

    @model_validator(mode="before")
    @classmethod
    def _is_judged_only_when_drawn(cls, given: Any) -> Any:
        if not isinstance(given, dict) or as_switch(given.get("enabled")) is True:
            return given
        return {"enabled": given.get("enabled")}

    def as_drawn(self) -> dict[str, Any] | None:
        """The overlay with every default filled in; None if it is not drawn."""
        return self.model_dump(mode="json", exclude={"enabled"}) if self.enabled else None


# --- the snap ---------------------------------------------------------------------------------------------------


def _one_of(*names: str) -> dict[str, Any]:
    """A JSON schema: at least one of these fields is given and not null."""
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


class Marked(LenientBody):
    """A moment of a video, and what is to be made of it."""

    data_filmagem: Filmed = Field(description="When it was filmed.")
    start_seconds: Annotated[float, _within(rules.START_SECONDS), Finite, AsNumber] | None = Field(
        None, description="From the beginning of the video.", examples=[12.48]
    )
    start_frame: Annotated[int, _within(rules.START_FRAME), NotText, AsNumber] | None = Field(
        None, description="The n-th frame in the order of display, from 0. It overrides `startSeconds`.", examples=[374]
    )
    duration_seconds: Duration = Field(description="How long frames are taken.", examples=[1.0])
    snapshot_duration_seconds: Duration | None = Field(
        None, description="How long the clip is; default `durationSeconds`.", examples=[2.0]
    )
    fps: Annotated[int, _within(rules.FPS), NotText, AsNumber] = Field(
        rules.DEFAULT_FPS, description="Frames taken of a second."
    )
    max_width: Annotated[int, _within(rules.MAX_WIDTH), NotText, AsNumber] = Field(
        rules.DEFAULT_MAX_WIDTH, description="Wider pictures are scaled down to this; others keep their size."
    )
    format: Annotated[rules.Format, LowerCase] = rules.DEFAULT_FORMAT
    quality: Annotated[int, _within(rules.QUALITY), NotText, AsNumber] | None = Field(
        None, description="For jpg only: 2 is best, 10 smallest; default 3."
    )
    overlay: Overlay | None = None

    @field_validator("quality")
    @classmethod
    def _only_of_jpg(cls, given: int | None, info: ValidationInfo) -> int | None:
        if given is not None and info.data.get("format") == rules.Format.PNG:
            raise ValueError("png has no quality: leave it out, or ask for jpg")
        return given

    @property
    def quality_used(self) -> int | None:
        return None if self.format is rules.Format.PNG else self.quality or rules.DEFAULT_QUALITY

    @property
    def clip_seconds(self) -> float:
        return self.snapshot_duration_seconds or self.duration_seconds

    @property
    def values_used(self) -> dict[str, Any]:
        """The values of `rules.WANTED`."""
        given = {name: getattr(self, name) for name in rules.WANTED}
        return given | {"format": self.format.value, "quality": self.quality_used}

    @property
    def overlay_drawn(self) -> dict[str, Any] | None:
        return self.overlay.as_drawn() if self.overlay else None

    def insist_on_a_start(self) -> None:
        if self.start_seconds is None and self.start_frame is None:
            raise whole(rules.NO_START)


class SnapRequest(Marked):
    """A moment of a video, and what it shows."""

    model_config = ConfigDict(json_schema_extra={**_AGREEING, "examples": [EXAMPLE]})

    video_id: UUID | None = Field(None, description="A video of the tenant. It overrides `videoUrl`.")
    video_url: VideoUrl | None = None
    subject_template_id: Annotated[int, Field(ge=1, le=HIGHEST_ID), NotText, AsNumber] | None = Field(
        None,
        description="The template that the subject must follow; by default the tenant's, which requires nothing.",
    )
    nickname: Nickname = Field(description="Who marks the moment.")
    email: Email
    is_draft: Switch = Field(False, description="Marked now, described later: see `PATCH …/subject`.")
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
    """A subject whose id is required, because there is no snap whose id it could take."""

    id: Annotated[SubjectId, Stripped]


class FramesRequest(Marked):
    """An item of `/v1/video-frames/process`. It belongs to no tenant, so it cannot name videos or templates by id, and
    who asks is not stored."""

    video_url: VideoUrl
    subject: NamedSubject

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        self.insist_on_a_start()
        return self


def _or_nothing(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(given)
    except ValidationError:
        return None


_Readable = WrapValidator(_or_nothing)


class ReadableParts(LenientBody):
    """The valid fields of an invalid item, by which the client can recognize it."""

    data_filmagem: Annotated[Filmed | None, _Readable] = None
    video_url: Annotated[Annotated[str, at_most(rules.VIDEO_URL_LONGEST)] | None, _Readable] = None
    subject: Annotated[Subject | None, _Readable] = None


class Correction(LenientBody):
    """The corrected subject or filming date, and who corrects it. Fields that are left out keep their values."""

    model_config = ConfigDict(json_schema_extra=_one_of("id", "attributes", "dataFilmagem"))

    id: SubjectId | None = None
    attributes: Attributes | None = Field(
        None, description="The complete list: attributes that are not in it are removed."
    )
    data_filmagem: Filmed | None = Field(
        None, description="When it was filmed. A draft stays a draft if only this is sent."
    )
    nickname: Nickname = Field(description="Who corrects it.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.id is None and self.attributes is None and self.data_filmagem is None:
            raise whole("Provide at least one of id, attributes or dataFilmagem")
        return self
