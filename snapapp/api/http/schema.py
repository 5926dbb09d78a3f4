"""What all models share: camelCase JSON, ids, texts that PostgreSQL can store, times with an offset."""

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
    """A body that a client sends. Unknown fields are ignored; a nullable field may be left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Asked(Sent):
    """A body in which null means "not given": every optional field may be null, and then has its default."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        required = schema.get("required", [])
        for name, field in schema.get("properties", {}).items():
            if name not in required:
                schema["properties"][name] = _or_null(field)
        return reference


def _or_null(field: dict[str, Any]) -> dict[str, Any]:
    if {"type": "null"} in field.get("anyOf", []):
        return field
    words = {key: value for key, value in field.items() if key in ("title", "description", "default", "examples")}
    limits = {key: value for key, value in field.items() if key not in words}
    return {"anyOf": [limits, {"type": "null"}], **words}


WHOLE = "whole_request"


def whole(message: str) -> PydanticCustomError:
    """A mistake that belongs to no single field. Its message becomes the answer's message, which clients compare."""
    return PydanticCustomError(WHOLE, message)


class Shown(BaseModel):
    """An answer; made from values of the domain with the same field names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


# --- numbers ----------------------------------------------------------------------------------------------------


def _from_digits(given: object) -> object:
    """A whole number in a path or a query, where numbers are text; pydantic alone would accept "1_000" and "5.0"."""
    if isinstance(given, str) and not (given.isascii() and given.removeprefix("-").isdecimal()):
        raise ValueError("Input should be a whole number")
    return given


def _not_text(given: object) -> object:
    """A whole number in JSON: not "5" and not true; 5.0 is accepted."""
    if isinstance(given, str | bool):
        raise ValueError("Input should be a whole number")
    return given


def _finite(given: object) -> object:
    """A number in JSON, as a float. NaN, infinity and ints beyond the range of floats are refused."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not -_HUGE <= given <= _HUGE:
        raise ValueError("Input should be a finite number")
    return float(given)


def _from_decimals(given: object) -> object:
    """A number in a query; pydantic alone would accept "nan", "1_0" and " 5"."""
    if isinstance(given, str) and not DECIMAL.fullmatch(given):
        raise ValueError("Input should be a finite number")
    return given


_HUGE = 1e300
DECIMAL = re.compile(r"-?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(e[+-]?[0-9]{1,2})?", re.ASCII | re.IGNORECASE)

Digits = BeforeValidator(_from_digits)
NotText = BeforeValidator(_not_text)
Finite = BeforeValidator(_finite)
Decimals = BeforeValidator(_from_decimals)
Id = Annotated[int, Field(ge=1, le=HIGHEST_ID), Digits]


# --- texts ------------------------------------------------------------------------------------------------------

Text = Annotated[str, StringConstraints(max_length=500, pattern=_WITHOUT_NUL)]
Label = Annotated[str, StringConstraints(max_length=200, pattern=_WITHOUT_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_WITHOUT_NUL)]


def _stripped(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("Input should hold more than blanks")
    return text


def at_most(longest: int) -> StringConstraints:
    return StringConstraints(max_length=longest, pattern=_WITHOUT_NUL)


Stripped = AfterValidator(_stripped)  # for typed text: blanks around it are removed, and it must not be empty


# --- moments ----------------------------------------------------------------------------------------------------


def _moment(given: object) -> object:
    """A time in ISO 8601; pydantic alone would read 5 and "5" as seconds since 1970."""
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
    """A JSON value, or a placeholder if it is nested too deeply for an answer. PostgreSQL allows deeper nesting, and
    the whole answer would fail."""
    try:
        pydantic_core.to_json(value)
    except (ValueError, RecursionError):
        return "(nested too deeply to be shown here; psql shows it)"
    return value


Json = Annotated[Any, BeforeValidator(_showable)]
