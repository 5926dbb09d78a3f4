"""Reads the environment file, whose settings apply where the environment has none."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from snapapp.settings.types import UnreadableError, quoted, visible

PREFIX = "SNAPAPP_"
DEFAULT_ENV_FILE = Path("/etc/snapapp/snapapp.env")
ENV_FILE_MAX_BYTES = 1_048_576


class Origin(StrEnum):
    DEFAULT = "default"
    ENVIRONMENT = "environment"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Given:
    """The text of one variable, and where it was set."""

    text: str
    origin: Origin
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFile:
    """An environment file as it was read: its variables, mistakes and warnings. `looked` describes it in messages."""

    looked: str
    values: Mapping[str, Given] = field(default_factory=lambda: MappingProxyType({}))
    mistakes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def beneath(cls, environ: Mapping[str, str]) -> "EnvFile":
        named = environ.get(f"{PREFIX}ENV_FILE", "").strip()
        return cls.at(Path(named) if named else DEFAULT_ENV_FILE, is_named=bool(named))

    @classmethod
    def at(cls, path: Path, *, is_named: bool) -> "EnvFile":
        """Reads the file. A file named by ENV_FILE must be readable. The default file need not be: systemd reads it for
        the service, and a command of a user who may not read it only warns."""
        try:
            with path.open("rb") as file:
                content = file.read(ENV_FILE_MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            return cls._without(path, error, is_named=is_named)
        return cls.parse(content, str(path))

    @classmethod
    def _without(cls, path: Path, error: Exception, *, is_named: bool) -> "EnvFile":
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        looked = f"{visible(str(path))} ({reason})"
        if is_named:
            return cls(looked=looked, mistakes=(f"{PREFIX}ENV_FILE names a file that cannot be read: {looked}",))
        if isinstance(error, FileNotFoundError):
            return cls(looked=looked)
        return cls(looked=looked, warnings=(f"{looked}: its settings are not applied",))

    @classmethod
    def parse(cls, content: bytes, name: str) -> "EnvFile":
        if len(content) > ENV_FILE_MAX_BYTES:
            return cls(looked=name, mistakes=(f"{name} is larger than {ENV_FILE_MAX_BYTES} bytes",))
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            return cls(looked=name, mistakes=(f"{name} is not UTF-8: {error.reason} at byte {error.start}",))
        return cls._from_lines(re.split(r"\r\n|\n|\r", text), name)

    @classmethod
    def _from_lines(cls, lines: list[str], name: str) -> "EnvFile":
        values: dict[str, Given] = {}
        mistakes: list[str] = []
        for count, line in enumerate(map(str.strip, lines), start=1):
            if not line or line[0] in "#;":
                continue
            place = f"{name} line {count}"
            try:
                key, value = _assignment(line)
            except UnreadableError as error:
                mistakes.append(f"{place}: {error}")
            else:
                values[key] = Given(value, Origin.FILE, place)  # the last one counts, as in systemd
        return cls(looked=name, values=values, mistakes=tuple(mistakes))


def _assignment(line: str) -> tuple[str, str]:
    """Reads KEY=VALUE as systemd's EnvironmentFile does. Its errors never show the value, which may be a secret."""
    key, separator, value = line.partition("=")
    if not separator:
        raise UnreadableError("it is not KEY=VALUE")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        raise UnreadableError(f"{quoted(key)} is not a variable's name")
    try:
        return key, _unquoted(value.strip())
    except UnreadableError as error:
        raise UnreadableError(f"the value of {key} {error}") from None


def _unquoted(value: str) -> str:
    if value[:1] not in {"'", '"'}:
        if "\\" in value:
            raise UnreadableError("holds a backslash: put it in single quotes")
        return value
    quote, inner = value[0], value[1:-1]
    if quote == "'" and len(value) > 1 and value.endswith(quote) and quote not in inner:
        return inner
    if quote == '"' and re.fullmatch(r'"(?:[^"\\]|\\.)*"', value):
        return re.sub(r'\\(["\\`$])', r"\1", inner)
    raise UnreadableError("is not closed by the quote that opens it")
