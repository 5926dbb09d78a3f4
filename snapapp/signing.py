"""Signs what clients get and send back unchanged, such as media links. HMAC-SHA256 with a separate key for each
purpose, so that a signature made for one purpose is not valid for another."""

import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from itsdangerous import BadData, Signer, URLSafeSerializer, base64_decode, base64_encode, want_bytes

from snapapp.errors import SnapError

_FILE = "signing-secret"
_SHORTEST = 32
_NEVER, _LAST = 0, datetime.max.replace(tzinfo=UTC)


class ForgedLink(SnapError):
    """The link was not signed here, or with a secret that is no longer in use."""

    def __init__(self) -> None:
        super().__init__("This link was not made here")


class ExpiredLink(SnapError):
    """The link was signed here, and has expired."""

    def __init__(self) -> None:
        super().__init__("This link has expired; whoever gave it can give a new one")


class NoSecret(SnapError):
    """There is no secret to sign with, and none can be created."""


class _OneSpelling(Signer):
    """Accepts only one spelling of each signature. base64 skips unknown characters, so that one signature could be
    written in many ways, and a cache would take one link for many."""

    def verify_signature(self, value: str | bytes, sig: str | bytes) -> bool:
        return super().verify_signature(value, sig) and base64_encode(base64_decode(sig)) == want_bytes(sig)


def sealer(secret_texts: Sequence[str], purpose: str) -> URLSafeSerializer:
    """Signs with the first secret and accepts signatures of all. To rotate, put a new secret first, and remove the old
    one when everything that it signed has expired. Checking takes the same time for right and wrong signatures."""
    if not secret_texts:
        raise ValueError("there is no secret to sign with")
    newest_last = [*reversed(secret_texts)]  # the order that itsdangerous expects
    how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(newest_last, salt=purpose, signer=_OneSpelling, signer_kwargs=how)


@dataclass(frozen=True, slots=True)
class MediaLinks:
    """Links `/media/{token}/{name}`. The token holds a prefix of the storage and the time when it expires, so all files
    of a snap share one token. Tokens made within an eighth of `ttl` are equal, because browsers cache by URL; so a
    token lasts `ttl` and up to an eighth longer. With a `ttl` of 0 it never expires."""

    secret_texts: Sequence[str] = field(repr=False)
    ttl: timedelta

    def base(self, prefix: str, now: datetime) -> str:
        """The beginning of a link, to which a file's name is added."""
        return f"/media/{self.token(prefix, now)}/"

    def token(self, prefix: str, now: datetime) -> str:
        return self._sealer().dumps([prefix, self._expires(now) if self.ttl else _NEVER])

    def _expires(self, now: datetime) -> int:
        step = max(1, int(self.ttl.total_seconds()) // 8)
        return -(-int((now + self.ttl).timestamp()) // step) * step

    def opened(self, token: str, now: datetime) -> tuple[str, datetime]:
        """The prefix of a token, and when it expires. Raises ForgedLink or ExpiredLink."""
        try:
            prefix, expires = self._sealer().loads(token)
        except BadData:
            raise ForgedLink from None
        ends = _LAST if expires == _NEVER else datetime.fromtimestamp(expires, UTC)
        if ends <= now:
            raise ExpiredLink
        return prefix, ends

    def _sealer(self) -> URLSafeSerializer:
        return sealer(self.secret_texts, "media links")


def secret_kept_in(folder: Path) -> str:
    """The secret for development. The first start creates it, and it is the same for all processes that share the
    folder."""
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
    draft = path.with_name(f".{_FILE}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was quicker; its secret counts
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
