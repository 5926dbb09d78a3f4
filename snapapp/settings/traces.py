"""Checks OpenTelemetry's own variables. The SDK ignores a value that it cannot read, with a log line at most; here such
a value is a mistake like any other."""

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from snapapp.settings.types import (
    Reader,
    UnreadableError,
    choice_of,
    number,
    quoted,
    switch,
    text_that,
    web_address,
    whole,
)

_ON = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_RATIO = ("traceidratio", "parentbased_traceidratio")
_SAMPLERS = ("always_on", "always_off", "parentbased_always_on", "parentbased_always_off", *_RATIO)
_LIMITED = (
    *("ATTRIBUTE_COUNT", "ATTRIBUTE_VALUE_LENGTH", "SPAN_ATTRIBUTE_COUNT", "SPAN_ATTRIBUTE_VALUE_LENGTH"),
    *("SPAN_EVENT_COUNT", "SPAN_LINK_COUNT", "EVENT_ATTRIBUTE_COUNT", "LINK_ATTRIBUTE_COUNT"),
)
_PAIR = re.compile(r"\s*[^\s=,]+\s*=[^,]*")


def _pairs() -> Reader[str]:
    accepts = "a list of name=value with commas between"
    return text_that(accepts, lambda text: all(map(_PAIR.fullmatch, text.split(","))))


def _readable_file() -> Reader[str]:
    def read(text: str) -> str:
        try:
            with Path(text).open("rb"):
                return text
        except (OSError, ValueError) as error:
            raise UnreadableError(getattr(error, "strerror", None) or str(error)) from None

    return Reader("a file that can be read", read)


def _limit() -> Reader[str]:
    count = whole(0, 1_000_000)

    def read(text: str) -> str:
        return text if text.lower() == "unset" else str(count.read(text))

    return Reader(f"{count.accepts}, or unset", read)


def _of_exporter(name: str, reader: Reader[Any]) -> dict[str, Reader[Any]]:
    return {f"OTEL_EXPORTER_OTLP_{name}": reader, f"OTEL_EXPORTER_OTLP_TRACES_{name}": reader}


_READERS: dict[str, Reader[Any]] = {
    "OTEL_TRACES_EXPORTER": choice_of("otlp", "none"),
    "OTEL_TRACES_SAMPLER": choice_of(*_SAMPLERS),
    "OTEL_RESOURCE_ATTRIBUTES": _pairs(),
    **{f"OTEL_{what}_LIMIT": _limit() for what in _LIMITED},
    "OTEL_BSP_SCHEDULE_DELAY": whole(1, 3_600_000),
    "OTEL_BSP_EXPORT_TIMEOUT": whole(1, 3_600_000),
    "OTEL_BSP_MAX_QUEUE_SIZE": whole(1, 1_000_000),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": whole(1, 1_000_000),
    **_of_exporter("ENDPOINT", web_address()),
    **_of_exporter("PROTOCOL", choice_of("http/protobuf")),
    **_of_exporter("HEADERS", _pairs()),
    **_of_exporter("TIMEOUT", number(0.001, 3600)),
    **_of_exporter("COMPRESSION", choice_of("none", "gzip", "deflate")),
    **_of_exporter("CERTIFICATE", _readable_file()),
    **_of_exporter("CLIENT_KEY", _readable_file()),
    **_of_exporter("CLIENT_CERTIFICATE", _readable_file()),
}
_SECRET = ("HEADERS", "RESOURCE_ATTRIBUTES")


def wanted(given: Mapping[str, str]) -> dict[str, str] | None:
    """OpenTelemetry's variables, if they name an endpoint or an exporter and do not switch traces off; else None."""
    its = {name: text.strip() for name, text in given.items() if name.startswith("OTEL_")}
    is_off = its.get("OTEL_SDK_DISABLED", "").lower() == "true" or its.get("OTEL_TRACES_EXPORTER", "").lower() == "none"
    is_named = any(name in its for name in (*_ON, "OTEL_TRACES_EXPORTER"))
    return its if is_named and not is_off else None


def mistakes(given: Mapping[str, str]) -> Iterator[str]:
    its = wanted(given)
    if its is None:
        return
    if "OTEL_SDK_DISABLED" in its:
        yield from _mistake("OTEL_SDK_DISABLED", its["OTEL_SDK_DISABLED"], switch().read, "true or false")
    for name, reader in _READERS.items():
        if name in its:
            yield from _mistake(name, its[name], reader.read, reader.accepts)
    if its.get("OTEL_TRACES_SAMPLER") in _RATIO and "OTEL_TRACES_SAMPLER_ARG" in its:
        ratio = number(0, 1)
        yield from _mistake("OTEL_TRACES_SAMPLER_ARG", its["OTEL_TRACES_SAMPLER_ARG"], ratio.read, ratio.accepts)
    yield from _clash(its)
    if not _is_installed():
        yield (
            f"{next(name for name in (*_ON, 'OTEL_TRACES_EXPORTER') if name in its)} asks for traces, and what sends "
            "them is not installed: install snapapp[telemetry], or set OTEL_SDK_DISABLED=true"
        )


def _mistake(name: str, text: str, read: Callable[[str], object], accepts: str) -> Iterator[str]:
    try:
        read(text)
    except UnreadableError as error:
        shown = " (value not shown)" if name.endswith(_SECRET) else f"={quoted(_without_user(text))}"
        yield f"{name}{shown} is not {accepts}" + (f": {error}" if str(error) else "")


def _without_user(text: str) -> str:
    """The text without the part before an @, which may be a secret in an address."""
    return re.sub(r"^(\w+://)?.*@", r"\1***@", text, flags=re.DOTALL)


def _clash(its: Mapping[str, str]) -> Iterator[str]:
    """A batch larger than the queue, with which the SDK refuses to start."""
    queue, batch = its.get("OTEL_BSP_MAX_QUEUE_SIZE", "2048"), its.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512")
    if queue.isdecimal() and batch.isdecimal() and int(batch) > int(queue):
        yield f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE={batch} must not exceed OTEL_BSP_MAX_QUEUE_SIZE={queue}"


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
