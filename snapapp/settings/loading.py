"""Loads the settings from the environment and the environment file. An error names every mistake of both."""

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from snapapp.errors import SettingsError
from snapapp.jobs.settings import RetrySettings
from snapapp.settings import traces
from snapapp.settings.env_file import PREFIX, EnvFile, Given, Origin
from snapapp.settings.table import TABLE, Environment, Setting, Settings, StorageKind
from snapapp.settings.types import UnreadableError, quoted, visible

T = TypeVar("T")


def from_environment() -> Settings:
    return load(os.environ, EnvFile.beneath(os.environ))


def load(environ: Mapping[str, str], file: EnvFile | None = None) -> Settings:
    """Settings from the environment over the file, or a SettingsError that names every mistake of both."""
    given = _given(environ, file)
    values: dict[str, Any] = {}
    mistakes = list(file.mistakes) if file else []
    wrong: set[str] = set()
    for name, entry in TABLE.items():
        text = entry.default_in(values.get("env", Environment.DEV))
        try:
            values[name] = _value(entry, given.get(entry.name), text)
        except UnreadableError as error:
            mistakes.append(str(error))
            wrong.add(name)
    settings = Settings(
        **values,
        given=MappingProxyType(given),
        warnings=(*(file.warnings if file else ()), *_warnings(environ, file)),
        looked_in=("the environment", *([file.looked] if file else [])),
    )
    mistakes += _clashes(settings, wrong, given)
    mistakes += _gaps(settings, wrong)
    mistakes += _dangers(settings, wrong, given)
    mistakes += traces.mistakes({name: its.text for name, its in given.items()})
    if mistakes:
        raise SettingsError(mistakes)
    return settings


def _given(environ: Mapping[str, str], file: EnvFile | None) -> dict[str, Given]:
    """The variables that are set. An empty variable counts as not set, so that the file's value applies."""
    layers = dict(file.values) if file else {}
    layers.pop(f"{PREFIX}ENV_FILE", None)  # a file cannot name itself
    layers |= {name: Given(text, Origin.ENVIRONMENT, "") for name, text in environ.items() if text.strip()}
    return {name: each for name, each in layers.items() if each.text.strip()}


def _value(entry: Setting[T], given: Given | None, default: str) -> T:
    if given is None:
        return entry.reader.read(default)
    try:
        return entry.reader.read(_printable(given.text.strip()))
    except UnreadableError as error:
        reason = f": {error}" if str(error) else ""
        raise UnreadableError(f"{_as_given(entry, given)} is not {entry.reader.accepts}{reason}") from None


def _printable(text: str) -> str:
    """Refuses control characters, NUL and undecodable bytes here, because they would cause errors far from here."""
    if not text.isprintable():
        raise UnreadableError("it holds characters that cannot be printed")
    return text


def _as_given(entry: Setting[Any], given: Given) -> str:
    value = " (value not shown)" if entry.secret else f"={quoted(given.text)}"
    return f"{entry.name}{value}" + (f" ({given.place})" if given.place else "")


# Some checks of the queue's settings concern several settings: the fields of each, by the beginning of its message.
_TOGETHER = {
    "the lease must outlast": ("job_lock_ttl", "job_heartbeat_interval"),
    "retry maximum must not": ("retry_max", "retry_base"),
}


def _clashes(settings: Settings, wrong: set[str], given: Mapping[str, Given]) -> Iterator[str]:
    """The mistakes that the queue finds in settings that are fine one by one. A field that is wrong by itself holds its
    default here, and a clash with that default is not a mistake of the user."""
    for refusal in [*_refusals(settings.retry), *_refusals(lambda: settings._jobs("", RetrySettings()))]:
        concerned = next((fields_ for start, fields_ in _TOGETHER.items() if refusal.startswith(start)), ())
        if wrong.isdisjoint(concerned):
            where = ", ".join(_as_set(TABLE[name], settings.env, given) for name in concerned)
            yield f"{where or 'the queue'}: {refusal}"


def _refusals(construct: Callable[[], object]) -> list[str]:
    try:
        construct()
    except ValueError as error:
        return str(error).split("; ")
    return []


def _gaps(settings: Settings, wrong: set[str]) -> Iterator[str]:
    """The settings that are missing because another setting needs them."""
    if settings.storage is StorageKind.S3:
        for name in ("s3_bucket", "s3_access_key_id", "s3_secret_access_key"):
            if name not in wrong and getattr(settings, name) is None:
                yield f"{TABLE[name].name} is required with {PREFIX}STORAGE=s3"
    if settings.internal_read_token is not None and wrong.isdisjoint({"internal_token", "internal_read_token"}):
        if settings.internal_token is None:
            yield f"{PREFIX}INTERNAL_TOKEN is required with {PREFIX}INTERNAL_READ_TOKEN: without it nobody may change"
        elif settings.internal_token == settings.internal_read_token:
            yield f"{PREFIX}INTERNAL_READ_TOKEN must differ from {PREFIX}INTERNAL_TOKEN: whoever has it only reads"


def _dangers(settings: Settings, wrong: set[str], given: Mapping[str, Given]) -> Iterator[str]:
    """The settings with which production refuses to start."""
    if settings.env is not Environment.PROD:
        return
    if settings.database_url is None and "database_url" not in wrong:
        yield f"{PREFIX}DATABASE_URL is required in prod: the embedded PostgreSQL is for development"
    if settings.internal_token is None and "internal_token" not in wrong:
        yield f"{PREFIX}INTERNAL_TOKEN is required in prod, it guards /internal: try `openssl rand -hex 24`"
    if not settings.signing_secret and "signing_secret" not in wrong:
        yield f"{PREFIX}SIGNING_SECRET is required in prod, it signs media links: try `openssl rand -hex 32`"
    if _is_in_the_clear(settings.s3_endpoint) and "s3_endpoint" not in wrong:
        yield f"{_as_set(TABLE['s3_endpoint'], settings.env, given)} must be https:// in prod, or on this machine"
    if settings.demo and "demo" not in wrong:
        yield f"{_as_set(TABLE['demo'], settings.env, given)} is for development: the demo is never shown in prod"
    for name, entry in TABLE.items():
        if name not in wrong and _is_path(getattr(settings, name), name) and not _is_absolute(entry, given):
            yield f"{_as_set(entry, settings.env, given)} must be an absolute path in prod"


def _is_in_the_clear(address: str | None) -> bool:
    if address is None or not address.startswith("http://"):
        return False
    return urlsplit(address).hostname not in ("localhost", "127.0.0.1", "::1")


def _is_path(value: object, name: str) -> bool:
    # a folder for backups is a text, because it may be a bucket as well
    return isinstance(value, Path) or (name == "backup_to" and value is not None and "://" not in str(value))


def _is_absolute(entry: Setting[Any], given: Mapping[str, Given]) -> bool:
    return Path(given[entry.name].text.strip() if entry.name in given else entry.default).is_absolute()


def _as_set(entry: Setting[Any], environment: Environment, given: Mapping[str, Given]) -> str:
    if entry.name in given:
        return _as_given(entry, given[entry.name])
    return f"{entry.name}={entry.default_in(environment)} (default)"


def _warnings(environ: Mapping[str, str], file: EnvFile | None) -> Iterator[str]:
    known = [entry.name for entry in TABLE.values()]
    for name in sorted({*environ, *(file.values if file else ())}):
        if name.upper().startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)
            yield f"{visible(name)} is not a setting" + (f"; did you mean {close[0]}?" if close else "")
    if file and f"{PREFIX}ENV_FILE" in file.values:
        yield f"{file.values[f'{PREFIX}ENV_FILE'].place}: {PREFIX}ENV_FILE has no effect in a file"
