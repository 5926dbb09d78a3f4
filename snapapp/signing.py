"""What we hand out and want back unchanged: media links, and whatever else needs a seal. HMAC-SHA256 with a key of its
own for each purpose, so that a seal for one thing is none for another."""

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
    """It was not made here, or with a secret that is no longer among ours."""

    def __init__(self) -> None:
        super().__init__("This link was not made here")


class ExpiredLink(SnapError):
    """It was made here, and its time is over."""

    def __init__(self) -> None:
        super().__init__("This link has expired; whoever gave it can give a new one")


class NoSecret(SnapError):
    """There is nothing to sign with, and nothing can be made."""


class _OneSpelling(Signer):
    """base64 skips what it does not know, so a seal could be written in many ways: one link were many to a cache."""

    def verify_signature(self, value: str | bytes, sig: str | bytes) -> bool:
        return super().verify_signature(value, sig) and base64_encode(base64_decode(sig)) == want_bytes(sig)


def sealer(secret_texts: Sequence[str], purpose: str) -> URLSafeSerializer:
    """The first secret seals, all of them open: a new one is put before the old, which goes when what it sealed has
    expired. A seal takes as long to be refused as to be accepted."""
    if not secret_texts:
        raise ValueError("there is no secret to sign with")
    newest_last = [*reversed(secret_texts)]  # as itsdangerous has them
    how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(newest_last, salt=purpose, signer=_OneSpelling, signer_kwargs=how)


@dataclass(frozen=True, slots=True)
class MediaLinks:
    """`/media/{token}/{name}`: the token names a prefix of the storage and when it ends, so all files of a snap share
    one. It is the same for a while, because browsers cache by URL; so it lasts `ttl`, and up to an eighth longer.
    With a `ttl` of 0 it does not end."""

    secret_texts: Sequence[str] = field(repr=False)
    ttl: timedelta

    def base(self, prefix: str, now: datetime) -> str:
        """To be followed by a file's name."""
        return f"/media/{self.token(prefix, now)}/"

    def token(self, prefix: str, now: datetime) -> str:
        return self._sealer().dumps([prefix, self._expires(now) if self.ttl else _NEVER])

    def _expires(self, now: datetime) -> int:
        step = max(1, int(self.ttl.total_seconds()) // 8)
        return -(-int((now + self.ttl).timestamp()) // step) * step

    def opened(self, token: str, now: datetime) -> tuple[str, datetime]:
        """Its prefix, and when it ends. Raises ForgedLink or ExpiredLink."""
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
