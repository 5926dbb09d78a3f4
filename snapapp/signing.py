"""What we hand out and want back unchanged: media links, and whatever else needs a seal. HMAC-SHA256 with a key of its
own for each purpose, so that a seal for one thing is none for another."""

import hmac
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from snapapp.errors import SnapError

_SEAL = 16  # bytes: 128 bits, which nobody guesses
_EXPIRY = 5  # bytes of whole seconds, good for 34,000 years
_LONGEST = 2000
_FILE = "signing-secret"
_SHORTEST = 32


class ForgedLink(SnapError):
    """It was not made here, or with a secret that is no longer among ours."""

    def __init__(self) -> None:
        super().__init__("This link was not made here")


class ExpiredLink(SnapError):
    """It was made here, and its time is over."""

    def __init__(self) -> None:
        super().__init__("This link has expired; whoever gave it can give a new one")


class NoSecret(SnapError):
    """There is nothing to sign with, and nothing can be made."""


class Signer:
    """The first secret seals, all of them open: a new one is put before the old, which goes when what it sealed has
    expired."""

    def __init__(self, secret_texts: Sequence[str], purpose: str) -> None:
        if not secret_texts:
            raise ValueError("there is no secret to sign with")
        self._keys = [hmac.digest(text.encode(), purpose.encode(), "sha256") for text in secret_texts]

    def seal(self, content: bytes) -> bytes:
        return hmac.digest(self._keys[0], content, "sha256")[:_SEAL]

    def is_ours(self, content: bytes, seal: bytes) -> bool:
        """Takes as long for a wrong seal as for a right one."""
        found = False
        for key in self._keys:
            found |= hmac.compare_digest(hmac.digest(key, content, "sha256")[:_SEAL], seal)
        return found


@dataclass(frozen=True, slots=True)
class MediaLinks:
    """`/media/{token}/{name}`: the token names a prefix of the storage and when it ends, so all files of a snap share
    one. It is the same for a while, because browsers cache by URL; so it lasts `ttl`, and up to an eighth longer."""

    secret_texts: Sequence[str] = field(repr=False)
    ttl: timedelta

    def base(self, prefix: str, now: datetime) -> str:
        """To be followed by a file's name."""
        return f"/media/{self.token(prefix, now)}/"

    def token(self, prefix: str, now: datetime) -> str:
        step = max(1, int(self.ttl.total_seconds()) // 8)
        expires = -(-int((now + self.ttl).timestamp()) // step) * step
        content = expires.to_bytes(_EXPIRY) + prefix.encode()
        return urlsafe_b64encode(self._signer().seal(content) + content).rstrip(b"=").decode()

    def opened(self, token: str, now: datetime) -> tuple[str, datetime]:
        """Its prefix, and when it ends. Raises ForgedLink or ExpiredLink."""
        sealed = _decoded(token)
        seal, content = sealed[:_SEAL], sealed[_SEAL:]
        if not self._signer().is_ours(content, seal):
            raise ForgedLink
        ends = datetime.fromtimestamp(int.from_bytes(content[:_EXPIRY]), UTC)
        if ends <= now:
            raise ExpiredLink
        return content[_EXPIRY:].decode(), ends

    def _signer(self) -> Signer:
        return Signer(self.secret_texts, "media links")


def _decoded(token: str) -> bytes:
    if len(token) > _LONGEST:
        raise ForgedLink
    try:
        sealed = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
    except (UnicodeEncodeError, NotBase64, ValueError):
        raise ForgedLink from None
    if urlsafe_b64encode(sealed).rstrip(b"=") != token.encode("ascii"):
        raise ForgedLink  # base64 skips what it does not know: one link would have many spellings
    return sealed


def secret_kept_in(folder: Path) -> str:
    """For development: made when it is first asked for, the same for all processes that share the folder."""
    path = folder / _FILE
    try:
        if not path.exists():
            _make_secret(path)
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoSecret(f"{path} cannot keep the secret that signs media links: {error}") from error
    if len(secret) < _SHORTEST:
        raise NoSecret(f"{path} is damaged: remove it, and links made so far end")
    return secret


def _make_secret(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = path.with_name(f".{_FILE}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # somebody was quicker: theirs counts
            os.link(written, path)
    finally:
        written.unlink(missing_ok=True)
