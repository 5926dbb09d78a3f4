"""What the models of all nouns share: camelCase JSON, ids, texts that PostgreSQL can keep, moments with an offset."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import pydantic_core
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

HIGHEST_ID = 2**63 - 1

_WITHOUT_NUL = r"^[^\x00]*$"


class Sent(BaseModel):
    """What a client sends: unknown fields are ignored, nulls may be sent or left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


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


Digits = BeforeValidator(_from_digits)
Number = BeforeValidator(_not_text)
Id = Annotated[int, Field(ge=1, le=HIGHEST_ID), Digits]
PageSize = Annotated[int, Field(ge=1, le=100), Digits]


# --- texts ------------------------------------------------------------------------------------------------------

Text = Annotated[str, StringConstraints(max_length=500, pattern=_WITHOUT_NUL)]
Label = Annotated[str, StringConstraints(max_length=200, pattern=_WITHOUT_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_WITHOUT_NUL)]


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
