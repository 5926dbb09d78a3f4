"""Limits on fetching one video: bytes, time and disk; and the hosts that are allowed although they are not public."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from snapapp.settings.table import Settings

MIB = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on fetching one video. The defaults are those of the settings, without a cache."""

    max_bytes: int = 1024 * MIB  # downloaded for one open file; the video may be larger if less of it is needed
    max_requests: int = 5_000
    timeout: timedelta = timedelta(minutes=2)  # of waiting for the network, for one open file; decoding does not count
    stall: timedelta = timedelta(seconds=15)  # without a single byte
    allowed_hosts: frozenset[str] = frozenset()  # host or host:port
    folder: Path | None = None  # for the cache and temporary files; the system's temporary folder may be in memory
    cache_bytes: int = 0  # 0: no shared cache

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        return cls(
            max_bytes=settings.fetch_max_mb * MIB,
            timeout=settings.fetch_timeout,
            allowed_hosts=frozenset(settings.fetch_allowed_hosts),
            folder=settings.data_dir / "cache" / "sources",
            cache_bytes=settings.source_cache_mb * MIB,
        )
