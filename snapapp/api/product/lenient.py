"""Values as leniently read as the old service read them: a number in quotes, a blank text, a date in milliseconds."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictBool, model_validator

from snapapp.api.http.schema import DECIMAL, Asked, Moment


class Meant(Asked):
    """Blanks around a text do not count, and a blank one was not given: what a form left empty, it sends as well."""

    @model_validator(mode="before")
    @classmethod
    def _blank_is_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        stripped = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        return {name: value for name, value in stripped.items() if value != "" or name in _MAY_BE_EMPTY}


_MAY_BE_EMPTY = ("stringValue", "string_value")  # to have no value is something else than to have no text


def _as_text(given: object) -> object:
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


def _as_number(given: object) -> object:
    """A fraction goes on to where it is judged, also as what should be whole."""
    if not isinstance(given, str) or not DECIMAL.fullmatch(given):
        return given
    return int(given) if given.removeprefix("-").isdecimal() else float(given)


def as_switch(given: object) -> object:
    return {"true": True, "false": False}.get(given.strip().lower(), given) if isinstance(given, str) else given


def _as_moment(given: object) -> object:
    """Since 1970, in seconds; in milliseconds where those would be later than any that is taken."""
    number = _as_number(given)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return given
    try:
        return datetime.fromtimestamp(number / 1000 if abs(number) >= _MILLISECONDS else number, UTC)
    except (OverflowError, ValueError, OSError):
        return given


def _in_lower_case(given: object) -> object:
    return given.lower() if isinstance(given, str) else given


def _in_upper_case(given: object) -> object:
    return given.upper() if isinstance(given, str) else given


_MILLISECONDS = 300_000_000_000  # in 1979; as seconds, in 11476

Texts = BeforeValidator(_as_text)
Numbers = BeforeValidator(_as_number)
LowerCase = BeforeValidator(_in_lower_case)
UpperCase = BeforeValidator(_in_upper_case)
Switch = Annotated[StrictBool, BeforeValidator(as_switch)]
Filmed = Annotated[Moment, BeforeValidator(_as_moment)]
