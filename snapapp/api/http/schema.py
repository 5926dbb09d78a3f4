"""What the models of all nouns share: camelCase JSON, ids, texts that PostgreSQL can keep, moments with an offset."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

HIGHEST_ID = 2**63 - 1

_WITHOUT_NUL = r"^[^\x00]*$"


class Sent(BaseModel):
    """What a client sends: unknown fields are ignored, nulls may be sent or left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Asked(Sent):
    """The same, and a null is as good as nothing: every field that may be left out may be null, and then has its
    default."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(core)
        whole = handler.resolve_ref_schema(made)
        required = whole.get("required", [])
        for name, field in whole.get("properties", {}).items():
            if name not in required:
                whole["properties"][name] = _or_null(field)
        return made


def _or_null(field: dict[str, Any]) -> dict[str, Any]:
    if {"type": "null"} in field.get("anyOf", []):
        return field
    told = {key: value for key, value in field.items() if key in ("title", "description", "default", "examples")}
    limits = {key: value for key, value in field.items() if key not in told}
    return {"anyOf": [limits, {"type": "null"}], **told}


WHOLE = "whole_request"


def whole(message: str) -> PydanticCustomError:
    """A mistake that is of no single field, and whose message clients match: it is the answer's message itself."""
    return PydanticCustomError(WHOLE, message)


class Shown(BaseModel):
    """What we answer; made of the domain's values, which have the same names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


# --- numbers ----------------------------------------------------------------------------------------------------


def _from_digits(given: object) -> object:
    """In a path or a query every number is text; pydantic alone would take "1_000" and "5.0"."""
    if isinstance(given, str) and not (given.isascii() and given.removeprefix("-").isdecimal()):
        raise ValueError("Input should be a whole number")
    return given


def _not_text(given: object) -> object:
    """In JSON a number is a number, neither "5" nor true; 5.0 is one too."""
    if isinstance(given, str | bool):
        raise ValueError("Input should be a whole number")
    return given


def _finite(given: object) -> object:
    """In JSON again: 5 is as good as 5.0; NaN, infinity and whole numbers beyond every float are no numbers."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not -_HUGE <= given <= _HUGE:
        raise ValueError("Input should be a finite number")
    return float(given)


def _from_decimals(given: object) -> object:
    """In a query: pydantic alone would take "nan", "1_0" and " 5"."""
    if isinstance(given, str) and not DECIMAL.fullmatch(given):
        raise ValueError("Input should be a finite number")
    return given


_HUGE = 1e300
DECIMAL = re.compile(r"-?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(e[+-]?[0-9]{1,2})?", re.ASCII | re.IGNORECASE)

Digits = BeforeValidator(_from_digits)
Number = BeforeValidator(_not_text)
Real = BeforeValidator(_finite)
Decimals = BeforeValidator(_from_decimals)
Id = Annotated[int, Field(ge=1, le=HIGHEST_ID), Digits]
PageSize = Annotated[int, Field(ge=1, le=100), Digits]


# --- texts ------------------------------------------------------------------------------------------------------

Text = Annotated[str, StringConstraints(max_length=500, pattern=_WITHOUT_NUL)]
Label = Annotated[str, StringConstraints(max_length=200, pattern=_WITHOUT_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_WITHOUT_NUL)]


def _said(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("Input should hold more than blanks")
    return text


def at_most(longest: int) -> StringConstraints:
    return StringConstraints(max_length=longest, pattern=_WITHOUT_NUL)


Said = AfterValidator(_said)  # for what somebody typed: without the blanks around it, and not empty


# --- moments ----------------------------------------------------------------------------------------------------


def _moment(given: object) -> object:
    """pydantic alone would take 5 and "5" for seconds since 1970."""
    if not isinstance(given, str):
        return given if isinstance(given, datetime) else _refuse_moment()
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        return _refuse_moment()


def _in_our_time(moment: datetime) -> datetime:
    return moment if moment.tzinfo and 1980 <= moment.year < 9000 else _refuse_moment()


def _refuse_moment() -> datetime:
    raise ValueError(
        "Input should be a time in ISO 8601 with an offset, such as 2030-01-31T08:00:00-03:00, between 1980 and 8999"
    )


_MOMENT = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^(19[89]|[2-8][0-9]{2})[0-9]-",
    "examples": ["2030-01-31T08:00:00-03:00"],
}
Moment = Annotated[datetime, BeforeValidator(_moment), AfterValidator(_in_our_time), WithJsonSchema(_MOMENT)]


def _in_seconds(span: object) -> object:
    return span.total_seconds() if isinstance(span, timedelta) else span


Seconds = Annotated[float, BeforeValidator(_in_seconds)]


# --- anything ---------------------------------------------------------------------------------------------------


def _showable(value: Any) -> Any:
    """The answer is nested less deeply than PostgreSQL may keep it; without this the whole answer would be lost."""
    try:
        pydantic_core.to_json(value)
    except (ValueError, RecursionError):
        return "(nested too deeply to be shown here; psql shows it)"
    return value


Json = Annotated[Any, BeforeValidator(_showable)]
