"""The settings of a worker: frozen, with units in the types, checked at construction. This module does not read the
environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite

CLUSTER = "dask://host:port or dask+tls://host:port"
_CLUSTER = re.compile(r"dask(\+tls)?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?):([0-9]{1,5})")


def cluster_url(typed: str) -> str | None:
    """The scheduler's address in Dask's notation; None: the text is no such address."""
    match = _CLUSTER.fullmatch(typed)
    if not match or not 0 < int(match[3]) < 65_536:
        return None
    return f"{'tls' if match[1] else 'tcp'}://{match[2]}:{match[3]}"


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
    """The pool of a worker that a supervisor started, and the limits at which a new worker replaces it, between two
    jobs."""

    pool: str
    master: str
    state_file: str | None = None  # made by the supervisor; the worker writes its state there
    max_jobs: int | None = None
    max_time: timedelta | None = None
    max_memory_mb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSettings:
    """All settings of a worker. The defaults are meant for production on a small box."""

    database_url: str
    queues: tuple[str, ...] = ()  # empty: all of them
    concurrency: int = 4  # jobs of the thread executor at once
    async_concurrency: int = 100  # jobs of the async executor at once
    children: int = 2  # warm child processes, one job each at a time
    child_max_jobs: int = 1000  # after so many jobs a child is replaced, between two jobs
    child_max_rss_mb: int = 300  # a child that holds more memory is replaced, between two jobs
    child_environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # variables added for children
    child_nice: int = 5  # niceness of children and commands, added to that of the process that starts them
    compute: str | None = None  # the scheduler of a cluster that runs the children; None: they run on this machine
    job_memory_mb: int = 512  # limit of a job in a child or a command, unless its kind sets one; 0: no limit
    memory_free_min_mb: int = 100  # jobs in processes of their own are claimed only if so much memory stays free
    commands: int = 2  # programs of `command` jobs at once
    command_allow: tuple[str, ...] = ()  # programs that payloads may name; empty: only the code may name programs
    job_connections: int = 2  # connections that running jobs can borrow; 0: none
    max_stuck: int | None = None  # so many threads beyond their deadline make the worker restart; None: concurrency
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
    worker_name: str | None = None  # a label for people; the worker's id is new at every start
    membership: Membership | None = None  # its place in a supervisor's pool; None: the worker was started by itself
    prepared_statements: bool = True  # off behind a PgBouncer older than 1.21 in transaction mode

    @property
    def hooks(self) -> int:
        """How many hooks may run at once: one for each slot. The hooks of async jobs wait for a free connection."""
        return self.concurrency + self.children + self.commands

    @property
    def connections(self) -> int:
        """How many connections to the database a worker takes at most: one each for claim, settle, beat, keep, notes,
        listen and schedules, one for each hook, and those that jobs borrow."""
        return 7 + self.hooks + self.job_connections

    def __post_init__(self) -> None:
        _raise_all(
            [
                (isinstance(self.queues, str), f"queues must be a tuple of names, not the text {self.queues!r}"),
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
    """Raises one ValueError that names every mistake, so that one restart is enough to fix them all."""
    mistakes = [message for wrong, message in checks if wrong]
    if mistakes:
        raise ValueError("; ".join(mistakes))
