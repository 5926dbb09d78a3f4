"""Payloads with a type. A processor that says `job: Job[Mail]` gets `job.data`, a Mail; what is no Mail is refused
where it is enqueued, and fails the job before the processor begins where it came in another way.

A Mail is a dataclass or a model of pydantic's. With pydantic installed values are checked and converted, as from JSON;
without it a dataclass looks at the names alone."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import Job, to_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_SHOWN_MISTAKES = 5


@lru_cache(maxsize=4096)
def wanted_by(function: Callable[..., Any]) -> Any:
    """The type that its annotation gives the payload; None: it takes what comes."""
    function = inspect.unwrap(function)  # a decorator's module does not know the names of its annotations
    said = next(iter(getattr(function, "__annotations__", {}).values()), None)
    if isinstance(said, str):
        if "[" not in said:
            return None
        hints = get_type_hints(SimpleNamespace(__annotations__={"job": said}), getattr(function, "__globals__", {}))
        said = hints["job"]
    if get_origin(said) is not Job:
        return None
    payload = get_args(said)[0]
    return None if payload is Any or (get_origin(payload) or payload) in (dict, Mapping) else payload


def fit(job: Job, function: Callable[..., Any]) -> None:
    """Before it begins: InvalidJob where its payload is not what it wants."""
    wanted = wanted_by(function)
    if wanted is not None:
        job.data = made(job.payload_json or b"{}", wanted)


def made(payload: Mapping[str, Any] | bytes, wanted: Any) -> Any:
    """From what is stored, as JSON: a strict model, or bytes in base64, may be read from that alone."""
    adapter = _adapter(wanted)
    try:
        if adapter is None:
            return wanted(**(json.loads(payload) if isinstance(payload, bytes) else payload))
        return _read(payload, adapter)
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"the payload is no {_name(wanted)}: {_mistakes(error)}") from None


def _read(payload: Mapping[str, Any] | bytes, adapter: "TypeAdapter[Any]") -> Any:
    """A mapping that is JSON is read as what it will be stored as; one with a date or a UUID in it, as Python's."""
    if isinstance(payload, bytes):
        return adapter.validate_json(payload)
    try:
        stored = to_json(dict(payload)).encode()
    except InvalidJob:
        return adapter.validate_python(dict(payload))
    return adapter.validate_json(stored)


def is_typed(given: object) -> bool:
    """A dataclass or a model, not yet a mapping."""
    return (dataclasses.is_dataclass(given) and not isinstance(given, type)) or hasattr(type(given), "model_dump")


def plain(given: Any, wanted: Any) -> dict[str, Any]:
    """As it is stored: checked against what is wanted, if anything is. What is typed already is read back: nobody has
    looked at a dataclass's values, and a model may write what it does not read."""
    if not is_typed(given):
        return dict(given) if wanted is None else _dumped(made(given, wanted), wanted)
    stored = _dumped(given, type(given))
    if wanted is not None:
        made(stored if _adapter(wanted) is None else to_json(stored).encode(), wanted)
    return stored


def schema(wanted: Any) -> dict[str, Any] | None:
    """As JSON schema has it; without pydantic the names."""
    if wanted is None:
        return None
    adapter = _adapter(wanted)
    if adapter is not None:
        return adapter.json_schema()
    fields = dataclasses.fields(wanted) if dataclasses.is_dataclass(wanted) else ()
    return {"title": _name(wanted), "properties": {field.name: {} for field in fields}}


def _dumped(given: Any, what: Any) -> dict[str, Any]:
    adapter = _adapter(what)
    try:
        if adapter is not None:  # in the names that it is read by, without what is only computed
            given = adapter.dump_python(given, mode="json", by_alias=True, round_trip=True, warnings=False)
        elif dataclasses.is_dataclass(given) and not isinstance(given, type):
            given = dataclasses.asdict(given)
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"the payload is no JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise InvalidJob(f"the payload must be a JSON object, not {type(given).__name__}")
    return dict(given)


def _name(wanted: Any) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)  # a union has none


@lru_cache(maxsize=1024)
def _adapter(wanted: Any) -> "TypeAdapter[Any] | None":
    if find_spec("pydantic") is None:
        return None
    from pydantic import TypeAdapter  # 20 MB, for whoever wants types

    return TypeAdapter(wanted)


def _mistakes(error: Exception) -> str:
    if not hasattr(error, "errors"):
        return str(error).removeprefix("__init__() ")
    found = [f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors(include_url=False)]
    more = len(found) - _SHOWN_MISTAKES
    return "; ".join(found[:_SHOWN_MISTAKES]) + (f"; and {more} more" if more > 0 else "")
