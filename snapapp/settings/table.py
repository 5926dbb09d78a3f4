"""The settings as one frozen value. The class `Settings` is the table of all settings; loading, `config --explain` and
docs/settings.md are made from it."""

# ruff: noqa: RUF009 (setting() is dataclasses.field() with a reader and a sentence)

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from snapapp.jobs.settings import JobsSettings, RetrySettings
from snapapp.settings import traces
from snapapp.settings.env_file import DEFAULT_ENV_FILE, PREFIX, Given
from snapapp.settings.types import (
    Reader,
    automatic,
    bucket_name,
    choice,
    cluster_address,
    days,
    folder_or_bucket,
    hook_address,
    hours,
    is_address_range,
    is_fetch_host,
    is_host,
    is_mail_address,
    is_module,
    is_origin,
    is_program,
    is_queue,
    key_prefix,
    label,
    listening_host,
    mail_server,
    milliseconds,
    names,
    number,
    optional,
    path,
    postgres_url,
    seconds_or_none,
    switch,
    token,
    tokens,
    web_address,
    whole,
)

DAY_MS = 86_400_000

T = TypeVar("T")


class Environment(StrEnum):
    DEV = "dev"
    PROD = "prod"


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class StorageKind(StrEnum):
    LOCAL = "local"
    S3 = "s3"


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One entry of the table. Its default is a text that is read like any other value, so the docs show it exactly."""

    name: str  # as in the environment, prefix included
    reader: Reader[T]
    default: str
    description: str
    secret: bool = False
    prod_default: str | None = None

    def default_in(self, environment: Environment) -> str:
        in_prod = environment is Environment.PROD and self.prod_default is not None
        return self.prod_default or "" if in_prod else self.default

    def shown(self, value: T) -> str:
        return self.reader.mask(value) if self.secret else self.reader.show(value)


def setting(reader: Reader[T], default: str, description: str, *, name: str = "", **its: Any) -> T:
    """Declares an entry. Its name in the environment is that of the field with the unit of its reader, or `name`."""

    def entry(attribute: str) -> Setting[T]:
        return Setting(f"{PREFIX}{name or attribute.upper() + reader.unit}", reader, default, description, **its)

    shows = not its.get("secret")
    return field(default_factory=lambda: reader.read(default), repr=shows, metadata={"entry": entry})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of snapapp, in the order of the documentation. `env` must be the first one for `load`."""

    env: Environment = setting(choice(Environment), "dev", "prod refuses what is only good enough for development.")
    env_file: Path = setting(path(), str(DEFAULT_ENV_FILE), "KEY=VALUE lines read beneath the environment, which wins.")
    database_url: str | None = setting(
        optional(postgres_url()), "", "The PostgreSQL to use; without it, the embedded one.", secret=True
    )
    data_dir: Path = setting(path(), "./var", "Where the embedded PostgreSQL and local files live.")
    host: str = setting(listening_host(), "127.0.0.1", "The address to listen on.")
    port: int = setting(whole(0, 65_535), "8000", "The port to listen on; 0 takes any free one.")
    internal_token: str | None = setting(
        optional(token(16)),
        "",
        "What `X-Internal-Token` must hold for /internal; without it, /internal answers only to localhost.",
        secret=True,
    )
    internal_read_token: str | None = setting(
        optional(token(16)),
        "",
        "Another value of `X-Internal-Token`, with which /internal and /ops are read, and nothing there is changed.",
        secret=True,
    )
    internal_allow: tuple[str, ...] = setting(
        names("addresses or ranges of them (10.0.0.0/8)", is_address_range),
        "",
        "The addresses from which /internal may be asked, token or not; none: all. This machine may always ask.",
    )
    require_api_token: bool = setting(switch(), "false", "Whether a tenant must prove itself with its token.")
    v1_open: bool = setting(
        switch(), "false", "Whether /v1, whose first clients have no token, answers without one all the same."
    )
    trusted_hosts: tuple[str, ...] = setting(
        names("host names", is_host),
        "",
        "Without REQUIRE_API_TOKEN: host names that clients may use besides PUBLIC_BASE_URL's, addresses and names "
        "without a dot; * allows any, and then a foreign web page may act in the name of the person who opens it.",
    )
    web_connections: int = setting(whole(1, 200), "10", "Connections to the database that requests share.")
    web_first: bool = setting(switch(), "true", "Whether the embedded worker pauses while a request is being answered.")
    disk_free_min_mb: int = setting(
        whole(0, 10_000_000), "500", "Under this much free disk, uploads and heavy work are refused and health says so."
    )
    storage: StorageKind = setting(
        choice(StorageKind), "local", "Where videos and what is made of them are kept: DATA_DIR or S3."
    )
    s3_endpoint: str | None = setting(optional(web_address()), "", "The address of an S3 that is not Amazon's.")
    s3_bucket: str | None = setting(optional(bucket_name()), "", "The bucket; it must exist.")
    s3_region: str = setting(label(60), "us-east-1", "The region that requests are signed with.")
    s3_prefix: str = setting(key_prefix(), "", "The prefix of all keys, in a bucket shared with others.")
    s3_access_key_id: str | None = setting(optional(token(3)), "", "The access key for S3.")
    s3_secret_access_key: str | None = setting(optional(token(8)), "", "The secret of that access key.", secret=True)
    backup_to: str | None = setting(
        optional(folder_or_bucket()),
        "",
        "The folder or bucket for backups; of this installation only, and on another disk than DATA_DIR.",
    )
    backup_key_file: Path | None = setting(
        optional(path()),
        "",
        "A key of age (`age-keygen`) that encrypts backups; none: no encryption. Keep a copy of it elsewhere.",
    )
    backup_keep: int = setting(whole(1, 10_000), "7", "How many of the newest backups are kept, however old.")
    backup_keep_for: timedelta = setting(
        days(0, 36_500), "30", "Backups younger than this are kept, too.", name="BACKUP_KEEP_DAYS"
    )
    backup_max_age: timedelta = setting(hours(1, 87_600), "26", "If the newest backup is older, the doctor warns.")
    backup_drill_max_age: timedelta = setting(
        days(1, 3_650), "8", "If the last good drill is longer ago, the doctor warns."
    )
    backup_s3_endpoint: str | None = setting(
        optional(web_address()),
        "",
        "The S3 address of the bucket in BACKUP_TO; this and the next three default to those of S3_*.",
    )
    backup_s3_region: str | None = setting(optional(label(60)), "", "The region of the bucket for backups.")
    backup_s3_access_key_id: str | None = setting(optional(token(3)), "", "The access key for that bucket.")
    backup_s3_secret_access_key: str | None = setting(optional(token(8)), "", "The secret of that key.", secret=True)
    media_retention: timedelta | None = setting(
        optional(days(1, 36_500)), "", "How long the files of a snap that nobody shared are kept; none: for ever."
    )
    upload_max_mb: int = setting(whole(1, 1_048_576), "1024", "The largest video that is taken.")
    tenant_storage_max_mb: int | None = setting(
        optional(whole(1, 1_000_000_000)),
        "",
        "What the uploads and the evidence of one tenant may take together; then uploads and browser copies are "
        "refused. None: no limit.",
    )
    signing_secret: tuple[str, ...] = setting(
        tokens(32),
        "",
        "Signs media links and cookies. Of several the first signs, and what the others signed stays valid. In dev it "
        "is made and kept in DATA_DIR.",
        secret=True,
    )
    media_url_ttl: timedelta = setting(
        seconds_or_none(60, 31_536_000),
        "86400",
        "How long a media link works, at least; 0: as long as its tenant's token, for clients that keep links.",
    )
    public_base_url: str | None = setting(optional(web_address()), "", "The beginning of links for people elsewhere.")
    cors_allowed_origins: tuple[str, ...] = setting(
        names("origins (https://app.example.com)", is_origin),
        "",
        "The origins whose web pages may call the API from a browser; * allows all.",
    )
    fetch_max_mb: int = setting(whole(1, 1_000_000), "1024", "The most that one job downloads of a remote video.")
    fetch_timeout: timedelta = setting(
        milliseconds(100, DAY_MS), "120000", "How long one job waits for the bytes of a remote video, in all."
    )
    fetch_allowed_hosts: tuple[str, ...] = setting(
        names("hosts (host or host:port)", is_fetch_host),
        "",
        "Hosts whose videos are fetched although their address is private; all others must be public.",
    )
    source_cache_mb: int = setting(
        whole(0, 10_000_000),
        "2048",
        "The disk for parts of remote videos, kept for the next snap of the same video; 0 keeps none.",
    )
    log_format: LogFormat = setting(choice(LogFormat), "console", "How log lines look.", prod_default="json")
    log_level: LogLevel = setting(choice(LogLevel), "INFO", "The least important lines to log.")
    prepared_statements: bool = setting(switch(), "true", "Off behind a PgBouncer older than 1.21 in transaction mode.")
    async_create: bool = setting(
        switch(), "true", "Whether a new snap is answered at once, with 202; else when it is finished, with 201."
    )
    sync_wait: timedelta = setting(
        milliseconds(1, 600_000),
        "60000",
        "How long an answer waits for its snap, or its still; then it is 202 after all.",
    )
    alert_webhook_url: str | None = setting(
        optional(hook_address()),
        "",
        "Where `serve` sends by POST what the doctor finds wrong, each finding once, and again when it is over.",
        secret=True,
    )
    alert_email: tuple[str, ...] = setting(
        names("e-mail addresses", is_mail_address), "", "To whom it sends the same by e-mail."
    )
    alert_smtp_url: str = setting(
        mail_server(), "smtp://localhost:25", "The mail server that takes these e-mails.", secret=True
    )
    heartbeat_url: str | None = setting(
        optional(hook_address()),
        "",
        "What `serve` asks for by GET while the doctor finds nothing wrong, so that its owner notices when that ends.",
        secret=True,
    )
    alert_interval: timedelta = setting(
        milliseconds(100, DAY_MS), "60000", "How often `serve` has the doctor look, where it is to tell somebody."
    )
    worker_enabled: bool = setting(switch(), "true", "Whether `serve` works the queue as well.")
    worker_id: str | None = setting(
        optional(label(100)), "", "A label for people; the real id is fresh at every start."
    )
    worker_queues: tuple[str, ...] = setting(
        names("queue names", is_queue), "", "The queues to work; none named: all of them."
    )
    worker_concurrency: int = setting(whole(1, 1_000), "4", "Jobs run in threads at once.")
    worker_async_concurrency: int = setting(whole(1, 10_000), "100", "`async def` jobs run at once.")
    worker_children: int = setting(whole(1, 256), "2", "Warm child processes, each running one job at a time.")
    compute: str | None = setting(
        optional(cluster_address()),
        "",
        "A cluster's scheduler (dask://host:8786), on whose nodes those children run; none: on this machine.",
    )
    worker_commands: int = setting(whole(1, 256), "2", "Programs of `command` jobs run at once.")
    worker_max_stuck: int | None = setting(
        optional(whole(1, 1_000)),
        "",
        "Threads that ignore their time limit before the worker wants a restart; none: WORKER_CONCURRENCY.",
    )
    worker_batch_size: int = setting(whole(1, 10_000), "100", "The most jobs claimed at once.")
    worker_poll_delay: timedelta | None = setting(
        automatic(milliseconds(10, DAY_MS)),
        "auto",
        "How often to look for jobs without a NOTIFY; auto: 1000, and 5000 while LISTEN is proven alive.",
    )
    job_lock_ttl: timedelta = setting(milliseconds(1, DAY_MS), "60000", "How long a silent worker keeps its jobs.")
    job_heartbeat_interval: timedelta = setting(
        milliseconds(1, DAY_MS), "10000", "How often a worker says it lives; under TTL/3."
    )
    job_recovery_interval: timedelta = setting(
        milliseconds(1, DAY_MS), "15000", "How often to look for dead workers' jobs."
    )
    job_max_attempts: int = setting(whole(1, 1_000), "3", "Attempts before a job is a dead letter.")
    job_timeout: timedelta = setting(milliseconds(1, 7 * DAY_MS), "900000", "The longest an attempt may run.")
    job_memory_mb: int = setting(
        whole(0, 1_048_576),
        "512",
        "The memory limit of a job in a child or a command, unless its kind sets one; 0: no limit.",
    )
    job_connections: int = setting(whole(0, 200), "2", "Connections to the database that running jobs share; 0: none.")
    memory_free_min_mb: int = setting(
        whole(0, 1_048_576),
        "100",
        "The memory that jobs in children and commands must leave free; a kind that needs more is held back.",
    )
    child_max_jobs: int = setting(whole(1, 1_000_000), "1000", "Jobs that a child runs before it is replaced.")
    child_max_rss_mb: int = setting(whole(1, 1_048_576), "300", "A child that is bigger after a job is replaced.")
    child_nice: int = setting(
        whole(0, 19), "5", "The niceness of children and commands: how far they come after the web for a core."
    )
    command_allow: tuple[str, ...] = setting(
        names("programs (names or whole paths)", is_program),
        "",
        "The programs that `command` jobs may run; none: only those that the code names as a constant.",
    )
    job_retention: timedelta = setting(hours(0, 87_600), "168", "How long finished jobs are kept; 0 keeps none.")
    retry_base: timedelta = setting(milliseconds(1, DAY_MS), "10000", "The delay before the first retry.")
    retry_multiplier: float = setting(number(1, 100), "2", "How much longer each further retry waits.")
    retry_max: timedelta = setting(milliseconds(1, 30 * DAY_MS), "300000", "The longest delay before a retry.")
    retry_jitter: float = setting(number(0, 1), "0.2", "The share of the delay that is random.")
    shutdown_grace: timedelta = setting(milliseconds(0, DAY_MS), "20000", "How long running jobs may finish at a stop.")
    fleet_plan: Path | None = setting(
        optional(path()), "", "The plan of `snapapp supervisor`; none: one pool over all queues."
    )
    processors: tuple[str, ...] = setting(
        names("dotted module names", is_module), "", "Further modules that declare processors."
    )
    product: bool | None = setting(
        optional(switch()),
        "",
        "Whether the product's tables and kinds are wanted, or the queue alone with the kinds of PROCESSORS; not set: "
        "the product, where it is installed.",
    )
    demo: bool = setting(
        switch(),
        "true",
        "Whether a new database begins with a demo video and three snaps of it; never in prod.",
        prod_default="false",
    )

    @property
    def has_product(self) -> bool:
        return find_spec("av") is not None if self.product is None else self.product

    # Where the settings came from. These fields are not settings, so comparisons leave them out.
    given: Mapping[str, Given] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)
    looked_in: tuple[str, ...] = field(default=("the environment",), compare=False, repr=False)

    @property
    def traces(self) -> Mapping[str, str] | None:
        """OpenTelemetry's variables; None: traces are off."""
        return traces.wanted({name: its.text for name, its in self.given.items()})

    def retry(self) -> RetrySettings:
        return RetrySettings(
            base=self.retry_base,
            multiplier=self.retry_multiplier,
            maximum=self.retry_max,
            jitter=self.retry_jitter,
        )

    def jobs(self, database_url: str) -> JobsSettings:
        return self._jobs(database_url, self.retry())

    def _jobs(self, database_url: str, retry: RetrySettings) -> JobsSettings:
        return JobsSettings(
            database_url=database_url,
            queues=self.worker_queues,
            concurrency=self.worker_concurrency,
            async_concurrency=self.worker_async_concurrency,
            children=self.worker_children,
            compute=self.compute,
            child_max_jobs=self.child_max_jobs,
            child_max_rss_mb=self.child_max_rss_mb,
            child_nice=self.child_nice,
            job_memory_mb=self.job_memory_mb,
            job_connections=self.job_connections,
            memory_free_min_mb=self.memory_free_min_mb,
            commands=self.worker_commands,
            command_allow=self.command_allow,
            max_stuck=self.worker_max_stuck,
            batch_size=self.worker_batch_size,
            poll_delay=self.worker_poll_delay,
            lease_for=self.job_lock_ttl,
            beat_every=self.job_heartbeat_interval,
            recover_every=self.job_recovery_interval,
            keep_finished=self.job_retention,
            shutdown_grace=self.shutdown_grace,
            timeout=self.job_timeout,
            max_attempts=self.job_max_attempts,
            retry=retry,
            worker_name=self.worker_id,
            prepared_statements=self.prepared_statements,
            child_environment=MappingProxyType(self._for_children()),
        )

    def _for_children(self) -> dict[str, str]:
        """The variables that a child needs to fetch a video and to store its results. Of the secrets only the bucket's
        is among them, and no environment file, which might hold others."""
        own = {name: self.given[name].text for name in _CHILDREN_KNOW if name in self.given}
        return own | {f"{PREFIX}DATA_DIR": str(self.data_dir.absolute()), f"{PREFIX}ENV_FILE": os.devnull}


_CHILDREN_KNOW = tuple(
    f"{PREFIX}{name}"
    for name in (
        *("FETCH_MAX_MB", "FETCH_TIMEOUT_MS", "FETCH_ALLOWED_HOSTS", "SOURCE_CACHE_MB", "DISK_FREE_MIN_MB", "STORAGE"),
        *("S3_ENDPOINT", "S3_BUCKET", "S3_REGION", "S3_PREFIX", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"),
    )
)

TABLE: Mapping[str, Setting[Any]] = MappingProxyType(
    {each.name: each.metadata["entry"](each.name) for each in fields(Settings) if "entry" in each.metadata}
)
