"""Typed payloads. A processor with the parameter `job: Job[Mail]` reads `job.data`, a Mail. `enqueue` refuses a payload
that does not fit Mail; if such a payload came in another way, the job fails before the processor begins.

Mail is a dataclass or a pydantic model. With pydantic installed, values are checked and converted as from JSON; without
it, only the names of a dataclass's fields are checked."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import Job, to_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_SHOWN_MISTAKES = 5


def wanted_by(function: Callable[..., Any]) -> Any:
    """The payload type in the annotation of the function's first parameter; None: any payload will do."""
    try:
        return _wanted_by(function)
    except TypeError:  # an object that cannot be hashed, as one of a dataclass
        return _wanted_by.__wrapped__(function)


@lru_cache(maxsize=4096)
def _wanted_by(function: Callable[..., Any]) -> Any:
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:  # it is written in C and says nothing of its parameters
        return None
    annotation = None if first is None else first.annotation
    if isinstance(annotation, str):
        if "[" not in annotation:
            return None
        annotated = SimpleNamespace(__annotations__={"job": annotation})
        annotation = get_type_hints(annotated, getattr(_written(function), "__globals__", {}))["job"]
    if get_origin(annotation) is not Job:
        return None
    payload = get_args(annotation)[0]
    return None if payload is Any or (get_origin(payload) or payload) in (dict, Mapping) else payload


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a decorator, a partial or an object: its module knows the names of the annotation."""
    function = inspect.unwrap(function)
    if isinstance(function, partial):
        return _written(function.func)
    return function if inspect.isroutine(function) else function.__call__  # type: ignore[operator]


def fit(job: Job, function: Callable[..., Any]) -> None:
    """Sets `job.data` before the function is called; InvalidJob if the payload does not fit the function's type."""
    wanted = wanted_by(function)
    if wanted is not None:
        job.data = typed(job.payload_json or b"{}", wanted)


def typed(payload: Mapping[str, Any] | bytes, wanted: Any) -> Any:
    """The payload as a value of the wanted type. It is read from JSON, because a strict model and bytes in base64 can
    only be read from JSON."""
    adapter = _adapter(wanted)
    try:
        if adapter is None:
            return wanted(**(json.loads(payload) if isinstance(payload, bytes) else payload))
        return _validated(payload, adapter)
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"the payload is no {_name(wanted)}: {_describe_errors(error)}") from None


def _validated(payload: Mapping[str, Any] | bytes, adapter: "TypeAdapter[Any]") -> Any:
    """Validates a mapping as the JSON that will be stored; a mapping that is not JSON (it holds a date or a UUID) is
    validated as Python values."""
    if isinstance(payload, bytes):
        return adapter.validate_json(payload)
    try:
        stored = to_json(dict(payload)).encode()
    except InvalidJob:
        return adapter.validate_python(dict(payload))
    return adapter.validate_json(stored)


def is_typed(given: object) -> bool:
    """Whether this is an instance of a dataclass or of a pydantic model."""
    return (dataclasses.is_dataclass(given) and not isinstance(given, type)) or hasattr(type(given), "model_dump")


def plain(given: Any, wanted: Any) -> dict[str, Any]:
    """The payload as the mapping that will be stored, checked against the wanted type if there is one. A dataclass or
    model is checked by reading back what it writes: a dataclass does not check its values, and a model may write
    something that it cannot read."""
    if not is_typed(given):
        return dict(given) if wanted is None else _as_mapping(typed(given, wanted), wanted)
    stored = _as_mapping(given, type(given))
    if wanted is not None:
        typed(stored if _adapter(wanted) is None else to_json(stored).encode(), wanted)
    return stored


def schema(wanted: Any) -> dict[str, Any] | None:
    """The JSON schema of a payload type; without pydantic only the names of the fields."""
    if wanted is None:
        return None
    adapter = _adapter(wanted)
    if adapter is not None:
        return adapter.json_schema()
    fields = dataclasses.fields(wanted) if dataclasses.is_dataclass(wanted) else ()
    return {"title": _name(wanted), "properties": {field.name: {} for field in fields}}


def _as_mapping(given: Any, what: Any) -> dict[str, Any]:
    adapter = _adapter(what)
    try:
        if adapter is not None:  # by the names that it is read by, and without computed fields
            given = adapter.dump_python(given, mode="json", by_alias=True, round_trip=True, warnings=False)
        elif dataclasses.is_dataclass(given) and not isinstance(given, type):
            given = dataclasses.asdict(given)
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"the payload is no JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise InvalidJob(f"the payload must be a JSON object, not {type(given).__name__}")
    return dict(given)


def _name(wanted: Any) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)  # a union has no __name__


@lru_cache(maxsize=1024)
def _adapter(wanted: Any) -> "TypeAdapter[Any] | None":
    if find_spec("pydantic") is None:
        return None
    from pydantic import TypeAdapter  # takes 20 MB, so only a process with typed payloads loads it

    return TypeAdapter(wanted)


def _describe_errors(error: Exception) -> str:
    if not hasattr(error, "errors"):
        return str(error).removeprefix("__init__() ")
    mistakes = [f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors(include_url=False)]
    more = len(mistakes) - _SHOWN_MISTAKES
    return "; ".join(mistakes[:_SHOWN_MISTAKES]) + (f"; and {more} more" if more > 0 else "")
