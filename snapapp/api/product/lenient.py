"""Reads values as leniently as the old service did: numbers in quotes, blank texts, dates in milliseconds."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictBool, model_validator

from snapapp.api.http.schema import DECIMAL, Asked, Moment
from snapapp.domain.rules.texts import composed


class LenientBody(Asked):
    """A body whose texts are stripped, and in which a blank text counts as not given, because forms send their empty
    fields."""

    @model_validator(mode="before")
    @classmethod
    def _blank_is_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        stripped = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        return {name: value for name, value in stripped.items() if value != "" or name in _MAY_BE_EMPTY}


_LONGEST = 20_000  # characters; composed, these are still more than any field takes
_MAY_BE_EMPTY = ("stringValue", "string_value")  # an attribute with an empty text differs from one without a value


def _composed(text: str) -> str:
    """The text, composed. One that no field takes, because it is too long, stays as it is until its field refuses it:
    composing 2 MB would block the event loop for 0.2 s."""
    return composed(text) if len(text) <= _LONGEST else text


def _as_text(given: object) -> object:
    if isinstance(given, str):
        return _composed(given)
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


def _as_number(given: object) -> object:
    """A number in quotes as a number. A fraction stays one; a field for whole numbers refuses it later."""
    if not isinstance(given, str) or not DECIMAL.fullmatch(given):
        return given
    return int(given) if given.removeprefix("-").isdecimal() else float(given)


def as_switch(given: object) -> object:
    return {"true": True, "false": False}.get(given.strip().lower(), given) if isinstance(given, str) else given


def _as_moment(given: object) -> object:
    """A number as a time since 1970: in seconds, or in milliseconds if as seconds it would be later than any time we
    accept."""
    number = _as_number(given)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return given
    try:
        return datetime.fromtimestamp(number / 1000 if abs(number) >= _MILLISECONDS else number, UTC)
    except (OverflowError, ValueError, OSError):
        return given


def _in_lower_case(given: object) -> object:
    return _composed(given).lower() if isinstance(given, str) else given


def _in_upper_case(given: object) -> object:
    return given.upper() if isinstance(given, str) else given


_MILLISECONDS = 300_000_000_000  # as milliseconds this is 1979, as seconds the year 11476

AsText = BeforeValidator(_as_text)
AsNumber = BeforeValidator(_as_number)
LowerCase = BeforeValidator(_in_lower_case)
UpperCase = BeforeValidator(_in_upper_case)
Switch = Annotated[StrictBool, BeforeValidator(as_switch)]
Filmed = Annotated[Moment, BeforeValidator(_as_moment)]
