"""Readers of settings: each turns the text of a setting into its value, and says in words what it accepts."""

import ipaddress
import keyword
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from snapapp.jobs.settings import CLUSTER, cluster_url

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class UnreadableError(ValueError):
    """A setting does not accept this text. The message is empty unless there is more to say than that."""


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """How the text of a setting becomes its value; `accepts` completes the sentence "X is not …"."""

    accepts: str
    read: Callable[[str], T]  # raises UnreadableError
    show: Callable[[T], str] = str
    mask: Callable[[T], str] = lambda _: "***"  # the part of a secret that may be shown
    unit: str = ""  # the ending of such a setting's name


def whole(low: int, high: int) -> Reader[int]:
    def read(text: str) -> int:
        # int() alone would accept "1_000", "٣" and any number of digits.
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise UnreadableError
        return int(text)

    return Reader(f"a whole number from {low} to {high}", read)


def number(low: float, high: float) -> Reader[float]:
    def read(text: str) -> float:
        if not re.fullmatch(
            r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(e[+-]?[0-9]{1,3})?", text, re.IGNORECASE
        ):
            raise UnreadableError  # "nan" and "inf" end here
        if not (math.isfinite(float(text)) and low <= float(text) <= high):
            raise UnreadableError
        return float(text)

    return Reader(f"a number from {low:g} to {high:g}", read, lambda value: f"{value:g}")


def milliseconds(low: int, high: int) -> Reader[timedelta]:
    return _duration(whole(low, high), "milliseconds", "_MS")


def hours(low: int, high: int) -> Reader[timedelta]:
    return _duration(whole(low, high), "hours", "_HOURS")


def days(low: int, high: int) -> Reader[timedelta]:
    return _duration(whole(low, high), "days", "_DAYS")


def seconds_or_none(low: int, high: int) -> Reader[timedelta]:
    """A number of seconds, or 0, which has a meaning of its own and is not a short time."""
    some = whole(low, high)

    def read(text: str) -> int:
        return 0 if re.fullmatch("0{1,18}", text) else some.read(text)

    return _duration(Reader(f"0, or {some.accepts}", read), "seconds", "_S")


def _duration(count: Reader[int], unit: str, ending: str) -> Reader[timedelta]:
    one = timedelta(**{unit: 1})
    accepts = f"{count.accepts} ({unit})"
    return Reader(accepts, lambda text: count.read(text) * one, lambda value: str(value // one), unit=ending)


def _word(accepts: str, words: Mapping[str, T], show: Callable[[T], str] = str) -> Reader[T]:
    """Accepts one of these words, in upper or lower case."""

    def read(text: str) -> T:
        if text.lower() not in words:
            raise UnreadableError
        return words[text.lower()]

    return Reader(accepts, read, show)


def switch() -> Reader[bool]:
    words = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
    accepts = "true or false (also 1/0, yes/no, on/off)"
    return _word(accepts, words, lambda value: "true" if value else "false")


def choice(kind: type[E]) -> Reader[E]:
    return _word(f"one of {', '.join(kind)}", {member.lower(): member for member in kind})


def choice_of(*words: str) -> Reader[str]:
    """Like `choice`, for words that have no StrEnum here."""
    return _word(f"one of {', '.join(words)}" if len(words) > 1 else words[0], {word: word for word in words})


def text_that(accepts: str, fits: Callable[[str], object]) -> Reader[str]:
    def read(text: str) -> str:
        if not fits(text):
            raise UnreadableError
        return text

    return Reader(accepts, read)


def label(longest: int) -> Reader[str]:
    def read(text: str) -> str:
        if len(text) > longest:
            raise UnreadableError(f"it has {len(text)} characters")
        return text

    return Reader(f"a text of at most {longest} characters", read)


def token(shortest: int) -> Reader[str]:
    def read(text: str) -> str:
        if not re.fullmatch(r"[\x21-\x7e]+", text):
            raise UnreadableError("it must be printable ASCII without blanks")
        if not shortest <= len(text) <= 200:
            raise UnreadableError(f"it has {len(text)} characters")
        return text

    return Reader(f"a secret of {shortest} to 200 characters", read)


def tokens(shortest: int) -> Reader[tuple[str, ...]]:
    """Several secrets: when a secret is replaced, what the old one signed can stay valid."""
    each = token(shortest)

    def read(text: str) -> tuple[str, ...]:
        return tuple(each.read(item) for item in _items(text))

    return Reader(f"{each.accepts}, or several separated by commas", read, mask=lambda value: "***" if value else "")


def path() -> Reader[Path]:
    def read(text: str) -> Path:
        if text.startswith("~"):
            raise UnreadableError("only a shell knows what ~ is; write the path out")
        return Path(text).absolute()

    return Reader("a path", read)


def listening_host() -> Reader[str]:
    is_name = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})").fullmatch
    accepts = "a host name or an IP address, without scheme or port"
    return text_that(accepts, lambda text: is_address(text) or is_name(text))


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_address_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def names(what: str, is_name: Callable[[str], bool]) -> Reader[tuple[str, ...]]:
    """A list with commas. The order is kept; blanks around items, empty items and repetitions are dropped."""

    def read(text: str) -> tuple[str, ...]:
        items = dict.fromkeys(_items(text))
        wrong = [quoted(item) for item in items if not is_name(item)]
        if wrong:
            raise UnreadableError(f"{', '.join(wrong)} cannot be one")
        return tuple(items)

    return Reader(f"a list of {what} separated by commas", read, ",".join)


def _items(text: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if text and not items:  # or a list whose items got lost would mean what no list means, such as every queue
        raise UnreadableError("it names nothing")
    return items


def is_queue(name: str) -> bool:
    return len(name) <= 200 and not re.search(r"\s", name)


def is_module(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def is_program(name: str) -> bool:
    return name.startswith("/") or "/" not in name


def is_fetch_host(text: str) -> bool:
    match = _FETCH_HOST.fullmatch(text)
    if match is None or not 1 <= int(match["port"] or 1) <= 65_535:
        return False
    is_number = match["name"] is None or match["name"].rpartition(".")[2].isdecimal()
    return not is_number or is_address(match["ipv6"] or match["name"])


def is_host(text: str) -> bool:
    return text == "*" or (is_fetch_host(text) and ":" not in text and text == text.lower())


_HOST_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_FETCH_HOST = re.compile(
    rf"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>{_HOST_LABEL}(?:\.{_HOST_LABEL})*))(?::(?P<port>[0-9]{{1,5}}))?"
)


def cluster_address() -> Reader[str]:
    return text_that(CLUSTER, cluster_url)


def web_address() -> Reader[str]:
    def read(text: str) -> str:
        if not _is_web_address(text):
            raise UnreadableError
        return text.rstrip("/")

    return Reader("an http:// or https:// address without user, query or fragment", read)


def hook_address() -> Reader[str]:
    """An address that is asked for as it is typed: its path may end in a slash, and a query may hold its secret."""
    is_ascii = re.compile(r"[\x21-\x7e]+").fullmatch
    accepts = "an http:// or https:// address in ASCII without user or fragment"
    return text_that(
        accepts, lambda text: is_ascii(text) and "#" not in text and _is_web_address(text.partition("?")[0])
    )


def _is_web_address(text: str) -> bool:
    return bool(re.fullmatch(r"https?://[^\s/?#@\\]+(/[^\s?#\\]*)?", text)) and _has_host_and_port(text)


def _has_host_and_port(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or half an IPv6 address
        return False


def is_origin(text: str) -> bool:
    return text == "*" or (_is_web_address(text) and text.count("/") == 2 and text == text.lower())


def is_mail_address(text: str) -> bool:
    return len(text) <= 254 and bool(re.fullmatch(r"[^\s@,<>\"]+@[^\s@,<>\"]+", text)) and text.isascii()


def mail_server() -> Reader[str]:
    is_one = re.compile(r"smtps?://([^\s/?#@:]+(:[^\s/?#@]*)?@)?[^\s/?#@]+").fullmatch
    accepts = "smtp://[user:password@]host[:port], or smtps://"
    return replace(text_that(accepts, lambda text: is_one(text) and _has_host_and_port(text)), mask=mask_password)


def key_prefix() -> Reader[str]:
    def read(text: str) -> str:
        trimmed = text.strip("/")
        if len(trimmed) > 150 or not re.fullmatch(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*", trimmed.replace("/", "")):
            raise UnreadableError
        if any(segment in ("", ".", "..") for segment in trimmed.split("/")):
            raise UnreadableError
        return trimmed

    return Reader("at most 150 letters, digits and ._=- between slashes", lambda text: read(text) if text else "")


def bucket_name() -> Reader[str]:
    accepts = "a bucket's name, 3 to 63 letters, digits, dots and hyphens"
    return text_that(accepts, re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]").fullmatch)


def folder_or_bucket() -> Reader[str]:
    def read(text: str) -> str:
        scheme, separator, rest = text.partition("://")
        if not separator:
            return str(path().read(text))
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3":
            raise UnreadableError(f"its scheme is {scheme}, not s3")
        bucket_name().read(bucket)
        return f"s3://{bucket}/{key_prefix().read(prefix.strip('/'))}"

    return Reader("a folder, or s3://BUCKET/PREFIX", read)


def postgres_url() -> Reader[str]:
    """Every spelling of the scheme becomes `postgresql://`, which libpq and SQLAlchemy both read."""
    return Reader(
        "a PostgreSQL URL (postgresql://user:password@host:port/database)",
        _read_postgres_url,
        mask=mask_password,
    )


def _read_postgres_url(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", scheme):
        raise UnreadableError("it has no scheme")
    if scheme.lower() not in {"postgresql", "postgres", "postgresql+psycopg"}:
        raise UnreadableError(f"its scheme is {scheme}, not postgresql")
    if re.search(r"\s", rest):
        raise UnreadableError("it holds a blank")
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", rest):
        raise UnreadableError("a % in it is not followed by two hex digits; a literal one is written %25")
    _check_hosts(re.split(r"[/?]", rest, maxsplit=1)[0])
    return f"postgresql://{rest}"


def _check_hosts(authority: str) -> None:
    """Checks the hosts of a URL: libpq takes several, each with a port. A raw @ : or / in a password is noticed here,
    because parts of the password are then read as hosts."""
    user, _, hosts = authority.rpartition("@")
    ports = [_HOST_AND_PORT.fullmatch(host) for host in hosts.split(",")]
    if "@" in user or not all(port and 1 <= int(port[1] or 1) <= 65_535 for port in ports):
        raise UnreadableError("its host or port cannot be read; in a password, write @ : / as %40 %3A %2F")


_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(?::([0-9]{0,5}))?")


def mask_password(url: str) -> str:
    """Hides everything up to the last @, so that no part of a password with a raw @ is shown."""
    url = re.sub(r"//([^:/@?]*):.*@", r"//\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url, flags=re.IGNORECASE)


def optional(reader: Reader[T]) -> Reader[T | None]:
    """A setting without a default; it is None if it is left out."""
    return Reader(
        reader.accepts,
        lambda text: reader.read(text) if text else None,
        lambda value: "" if value is None else reader.show(value),
        lambda value: "" if value is None else reader.mask(value),
        reader.unit,
    )


def automatic(reader: Reader[T]) -> Reader[T | None]:
    """A setting that may be `auto`; it is then None, and the program decides by what it measures."""
    return Reader(
        f"auto, or {reader.accepts}",
        lambda text: None if text == "auto" else reader.read(text),
        lambda value: "auto" if value is None else reader.show(value),
        unit=reader.unit,
    )


# --- quoting values in messages -------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def visible(text: str) -> str:
    return text if text.isprintable() else repr(text)
