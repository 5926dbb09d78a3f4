"""How a worker behaves: frozen, with units in the types, checked at construction. Reads no environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite

CLUSTER = "dask://host:port or dask+tls://host:port"
_CLUSTER = re.compile(r"dask(\+tls)?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?):([0-9]{1,5})")


def cluster_url(typed: str) -> str | None:
    """The scheduler's address as Dask has it; None where it is none."""
    found = _CLUSTER.fullmatch(typed)
    if not found or not 0 < int(found[3]) < 65_536:
        return None
    return f"{'tls' if found[1] else 'tcp'}://{found[2]}:{found[3]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Exponential backoff: base * multiplier ** (attempt - 1), never above the maximum, spread by jitter (0 to 1)."""

    base: timedelta = timedelta(seconds=10)
    multiplier: float = 2.0
    maximum: timedelta = timedelta(minutes=5)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _raise_all(
            [
                (self.base <= timedelta(0), "retry base must be longer than zero"),
                (self.multiplier < 1, f"retry multiplier must be at least 1, not {self.multiplier:g}"),
                (not isfinite(self.multiplier), f"retry multiplier must be finite, not {self.multiplier:g}"),
                (self.maximum < self.base, "retry maximum must not be shorter than its base"),
                (not 0 <= self.jitter <= 1, f"retry jitter must lie between 0 and 1, not {self.jitter:g}"),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Of a worker that a supervisor started: whose it is, and when it makes room for a new one, between two jobs."""

    pool: str
    master: str
    state_file: str | None = None  # which the supervisor has made for it
    max_jobs: int | None = None
    max_time: timedelta | None = None
    max_memory_mb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSettings:
    """Everything a worker is told. The defaults are meant for production on a small box."""

    database_url: str
    queues: tuple[str, ...] = ()  # empty: all of them
    concurrency: int = 4  # jobs of the thread executor at once
    async_concurrency: int = 100  # jobs of the async executor at once
    children: int = 2  # warm child processes, one job each at a time
    child_max_jobs: int = 1000  # then a child is replaced, between two jobs
    child_max_rss_mb: int = 300  # likewise, when it is this big
    child_environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # beside what any program needs
    child_nice: int = 5  # how far children and commands stand behind the process that started them
    compute: str | None = None  # a cluster's scheduler, on whose nodes the children run; None: here
    job_memory_mb: int = 512  # of a job in a child or a command, where its kind says nothing; 0: no limit
    memory_free_min_mb: int = 100  # kinds in processes of their own are claimed only if what they need leaves so much
    commands: int = 2  # programs of `command` jobs at once
    command_allow: tuple[str, ...] = ()  # empty: only what the code itself names
    job_connections: int = 2  # lent to running jobs; 0: none
    max_stuck: int | None = None  # threads that ignore their deadline before a restart is wanted; None: concurrency
    batch_size: int = 100
    poll_delay: timedelta | None = None  # between two claims; None: a second, and five while LISTEN is proven alive
    lease_for: timedelta = timedelta(seconds=60)
    beat_every: timedelta = timedelta(seconds=10)
    recover_every: timedelta = timedelta(seconds=15)
    prune_every: timedelta = timedelta(minutes=1)
    keep_finished: timedelta = timedelta(hours=168)
    shutdown_grace: timedelta = timedelta(seconds=20)
    timeout: timedelta = timedelta(minutes=15)
    max_attempts: int = 3
    max_interruptions: int = 20
    retry: RetrySettings = field(default_factory=RetrySettings)
    worker_name: str | None = None  # a label for people; the worker's id is fresh at every start
    membership: Membership | None = None  # of a pool; None: the worker was started by itself
    prepared_statements: bool = True  # off behind a PgBouncer older than 1.21 in transaction mode

    @property
    def hooks(self) -> int:
        """That may run at once: one for each slot. Those of async jobs wait for a connection that is free."""
        return self.concurrency + self.children + self.commands

    @property
    def connections(self) -> int:
        """To the database, at most: claim, settle, beat, keep, notes, listen and schedules, one for each hook, and
        those that jobs borrow."""
        return 7 + self.hooks + self.job_connections

    def __post_init__(self) -> None:
        _raise_all(
            [
                (self.concurrency < 1, f"concurrency must be at least 1, not {self.concurrency}"),
                (
                    self.async_concurrency < 1,
                    f"async concurrency must be at least 1, not {self.async_concurrency}",
                ),
                (self.children < 0, f"children must not be negative: {self.children}"),
                (self.child_max_jobs < 1, f"a child must do at least 1 job, not {self.child_max_jobs}"),
                (self.child_max_rss_mb < 1, f"a child needs at least 1 MB, not {self.child_max_rss_mb}"),
                (not 0 <= self.child_nice <= 19, f"niceness must lie between 0 and 19, not {self.child_nice}"),
                (
                    self.compute is not None and cluster_url(self.compute) is None,
                    f"compute must be {CLUSTER}, not {self.compute}",
                ),
                (self.job_memory_mb < 0, f"a job's memory must not be negative: {self.job_memory_mb}"),
                (self.job_connections < 0, f"job connections must not be negative: {self.job_connections}"),
                (
                    self.memory_free_min_mb < 0,
                    f"memory to be left free must not be negative: {self.memory_free_min_mb}",
                ),
                (self.commands < 1, f"commands must be at least 1, not {self.commands}"),
                (
                    self.max_stuck is not None and self.max_stuck < 1,
                    f"max stuck must be at least 1, not {self.max_stuck}",
                ),
                (not 1 <= self.batch_size <= 10_000, f"batch size must be 1 to 10000, not {self.batch_size}"),
                (
                    self.poll_delay is not None and self.poll_delay < timedelta(milliseconds=10),
                    "the poll delay must be at least 10 ms",
                ),
                (self.beat_every <= timedelta(0), "the heartbeat interval must be longer than zero"),
                (
                    self.lease_for <= 3 * self.beat_every,
                    "the lease must outlast three beats: "
                    f"{self.lease_for.total_seconds():g} s is not more than 3 x {self.beat_every.total_seconds():g} s",
                ),
                (self.recover_every <= timedelta(0), "the recovery interval must be longer than zero"),
                (self.prune_every <= timedelta(0), "the prune interval must be longer than zero"),
                (self.keep_finished < timedelta(0), "the retention must not be negative"),
                (self.shutdown_grace < timedelta(0), "the shutdown grace must not be negative"),
                (self.timeout <= timedelta(0), "the job timeout must be longer than zero"),
                (
                    not 1 <= self.max_attempts <= 1000,
                    f"max attempts must be 1 to 1000, not {self.max_attempts}",
                ),
                (self.max_interruptions < 0, "max interruptions must not be negative"),
            ]
        )


def _raise_all(checks: list[tuple[bool, str]]) -> None:
    """Every mistake at once: nobody likes to fix settings one restart at a time."""
    mistakes = [message for wrong, message in checks if wrong]
    if mistakes:
        raise ValueError("; ".join(mistakes))
