"""The environment as one frozen value. The class `Settings` is the table: one entry a setting, from which
parsing, `config --explain` and docs/settings.md follow. Nothing else in snapapp reads the environment."""

# ruff: noqa: RUF009 (setting() is dataclasses.field() with a name, a parser and a sentence)

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from snapapp.errors import SettingsError
from snapapp.jobs.settings import JobsSettings, RetrySettings
from snapapp.settings.types import (
    Reader,
    UnreadableError,
    automatic,
    bucket_name,
    choice,
    days,
    folder_or_bucket,
    hours,
    is_address_range,
    is_fetch_host,
    is_host,
    is_module,
    is_origin,
    is_program,
    is_queue,
    key_prefix,
    label,
    listening_host,
    milliseconds,
    names,
    number,
    optional,
    path,
    postgres_url,
    quoted,
    seconds_or_none,
    switch,
    token,
    tokens,
    visible,
    web_address,
    whole,
)

PREFIX = "SNAPAPP_"
DEFAULT_ENV_FILE = Path("/etc/snapapp/snapapp.env")
ENV_FILE_MAX_BYTES = 1_048_576
DAY_MS = 86_400_000

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


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


class Origin(StrEnum):
    DEFAULT = "default"
    ENVIRONMENT = "environment"
    FILE = "file"


# --- The table ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One entry of the table. Its default is text, read like any other, so the docs tell the truth."""

    name: str  # as in the environment, prefix included
    reader: Reader[T]
    default: str
    description: str
    secret: bool
    prod_default: str | None

    def default_in(self, environment: Environment) -> str:
        in_prod = environment is Environment.PROD and self.prod_default is not None
        return self.prod_default or "" if in_prod else self.default

    def shown(self, value: T) -> str:
        return self.reader.mask(value) if self.secret else self.reader.show(value)


def setting(
    name: str,
    reader: Reader[T],
    default: str,
    description: str,
    *,
    secret: bool = False,
    prod_default: str | None = None,
) -> T:
    entry = Setting(PREFIX + name, reader, default, description, secret, prod_default)
    return field(default_factory=lambda: reader.read(default), repr=not secret, metadata={"setting": entry})


@dataclass(frozen=True, slots=True)
class Explained:
    """A row of `snapapp config --explain`; the value is safe to show."""

    name: str
    value: str
    source: Origin
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of snapapp, in the order of the documentation; `load` needs `env` to be the first."""

    env: Environment = setting(
        "ENV", choice(Environment), "dev", "prod refuses what is only good enough for development."
    )
    env_file: Path = setting(
        "ENV_FILE", path(), str(DEFAULT_ENV_FILE), "KEY=VALUE lines read beneath the environment, which wins."
    )
    database_url: str | None = setting(
        "DATABASE_URL",
        optional(postgres_url()),
        "",
        "The PostgreSQL to use; without it, the embedded one.",
        secret=True,
    )
    data_dir: Path = setting("DATA_DIR", path(), "./var", "Where the embedded PostgreSQL and local files live.")
    host: str = setting("HOST", listening_host(), "127.0.0.1", "The address to listen on.")
    port: int = setting("PORT", whole(0, 65_535), "8000", "The port to listen on; 0 takes any free one.")
    internal_token: str | None = setting(
        "INTERNAL_TOKEN",
        optional(token(16)),
        "",
        "What `X-Internal-Token` must hold for /internal; without it, /internal answers only to localhost.",
        secret=True,
    )
    internal_read_token: str | None = setting(
        "INTERNAL_READ_TOKEN",
        optional(token(16)),
        "",
        "Another value of `X-Internal-Token`, with which /internal and /ops are read, and nothing there is changed.",
        secret=True,
    )
    internal_allow: tuple[str, ...] = setting(
        "INTERNAL_ALLOW",
        names("addresses or ranges of them (10.0.0.0/8)", is_address_range),
        "",
        "From where /internal answers, token or not; none named: from everywhere. This machine may always ask.",
    )
    require_api_token: bool = setting(
        "REQUIRE_API_TOKEN", switch(), "false", "Whether a tenant must prove itself with its token."
    )
    v1_open: bool = setting(
        "V1_OPEN",
        switch(),
        "false",
        "Whether /v1, whose first clients have no token, answers without one all the same.",
    )
    trusted_hosts: tuple[str, ...] = setting(
        "TRUSTED_HOSTS",
        names("host names", is_host),
        "",
        "Where tokens are not required: names besides PUBLIC_BASE_URL's by which clients come, but for addresses and "
        "names without a dot; * is any, and then a foreign page may act in the name of whoever opens it.",
    )
    web_connections: int = setting(
        "WEB_CONNECTIONS", whole(1, 200), "10", "Connections to the database that requests share."
    )
    web_first: bool = setting(
        "WEB_FIRST", switch(), "true", "Whether the embedded worker pauses while a request is being answered."
    )
    disk_free_min_mb: int = setting(
        "DISK_FREE_MIN_MB",
        whole(0, 10_000_000),
        "500",
        "Under this much free disk, uploads and heavy work are refused and health says so.",
    )
    storage: StorageKind = setting(
        "STORAGE", choice(StorageKind), "local", "Where videos and what is made of them are kept: DATA_DIR or S3."
    )
    s3_endpoint: str | None = setting(
        "S3_ENDPOINT", optional(web_address()), "", "Of what speaks S3 and is not Amazon's."
    )
    s3_bucket: str | None = setting("S3_BUCKET", optional(bucket_name()), "", "The bucket; it must be there.")
    s3_region: str = setting("S3_REGION", label(60), "us-east-1", "The region, as requests are signed with it.")
    s3_prefix: str = setting("S3_PREFIX", key_prefix(), "", "What all keys begin with, in a bucket with others in it.")
    s3_access_key_id: str | None = setting("S3_ACCESS_KEY_ID", optional(token(3)), "", "Who we are to S3.")
    s3_secret_access_key: str | None = setting(
        "S3_SECRET_ACCESS_KEY", optional(token(8)), "", "And what proves it.", secret=True
    )
    backup_to: str | None = setting(
        "BACKUP_TO",
        optional(folder_or_bucket()),
        "",
        "Where backups go; a place of this installation's own, on another disk than DATA_DIR.",
    )
    backup_key_file: Path | None = setting(
        "BACKUP_KEY_FILE",
        optional(path()),
        "",
        "A key of age (`age-keygen`) that seals backups; none: they are not sealed. Keep a copy elsewhere.",
    )
    backup_keep: int = setting("BACKUP_KEEP", whole(1, 10_000), "7", "The newest backups that stay, however old.")
    backup_keep_for: timedelta = setting(
        "BACKUP_KEEP_DAYS", days(0, 36_500), "30", "And those that are younger than this."
    )
    backup_max_age: timedelta = setting(
        "BACKUP_MAX_AGE_HOURS", hours(1, 87_600), "26", "An older newest backup is a warning."
    )
    backup_drill_max_age: timedelta = setting(
        "BACKUP_DRILL_MAX_AGE_DAYS", days(1, 3_650), "8", "A longer time since the last good drill is one, too."
    )
    backup_s3_endpoint: str | None = setting(
        "BACKUP_S3_ENDPOINT",
        optional(web_address()),
        "",
        "Of the bucket in BACKUP_TO, where it is another than S3_ENDPOINT; so with the next three.",
    )
    backup_s3_region: str | None = setting("BACKUP_S3_REGION", optional(label(60)), "", "Its region.")
    backup_s3_access_key_id: str | None = setting(
        "BACKUP_S3_ACCESS_KEY_ID", optional(token(3)), "", "Who we are there."
    )
    backup_s3_secret_access_key: str | None = setting(
        "BACKUP_S3_SECRET_ACCESS_KEY", optional(token(8)), "", "And what proves it.", secret=True
    )
    media_retention: timedelta | None = setting(
        "MEDIA_RETENTION_DAYS",
        optional(days(1, 36_500)),
        "",
        "How long the files of a snap that nobody shared are kept; none: for ever.",
    )
    upload_max_mb: int = setting("UPLOAD_MAX_MB", whole(1, 1_048_576), "1024", "The largest video that is taken.")
    tenant_storage_max_mb: int | None = setting(
        "TENANT_STORAGE_MAX_MB",
        optional(whole(1, 1_000_000_000)),
        "",
        "What the uploads and the evidence of one tenant may take together; then uploads and browser copies are "
        "refused. None: no limit.",
    )
    signing_secret: tuple[str, ...] = setting(
        "SIGNING_SECRET",
        tokens(32),
        "",
        "Signs media links and cookies; of several the first, and the others still count. In dev made and kept in "
        "DATA_DIR.",
        secret=True,
    )
    media_url_ttl: timedelta = setting(
        "MEDIA_URL_TTL_S",
        seconds_or_none(60, 31_536_000),
        "86400",
        "How long a media link works, at least; 0: as long as its tenant's token, for clients that keep links.",
    )
    public_base_url: str | None = setting(
        "PUBLIC_BASE_URL", optional(web_address()), "", "What links that leave the house begin with."
    )
    cors_allowed_origins: tuple[str, ...] = setting(
        "CORS_ALLOWED_ORIGINS",
        names("origins (https://app.example.com)", is_origin),
        "",
        "Whose pages in a browser may call the API; * is everybody's.",
    )
    fetch_max_mb: int = setting(
        "FETCH_MAX_MB", whole(1, 1_000_000), "1024", "The most that one job downloads of a remote video."
    )
    fetch_timeout: timedelta = setting(
        "FETCH_TIMEOUT_MS",
        milliseconds(100, DAY_MS),
        "120000",
        "How long one job waits for the bytes of a remote video, in all.",
    )
    fetch_allowed_hosts: tuple[str, ...] = setting(
        "FETCH_ALLOWED_HOSTS",
        names("hosts (host or host:port)", is_fetch_host),
        "",
        "Hosts whose videos are fetched although their address is private; all others must be public.",
    )
    source_cache_mb: int = setting(
        "SOURCE_CACHE_MB",
        whole(0, 10_000_000),
        "2048",
        "The disk for parts of remote videos, kept for the next snap of the same video; 0 keeps none.",
    )
    log_format: LogFormat = setting(
        "LOG_FORMAT", choice(LogFormat), "console", "How log lines look.", prod_default="json"
    )
    log_level: LogLevel = setting("LOG_LEVEL", choice(LogLevel), "INFO", "The least important lines to log.")
    prepared_statements: bool = setting(
        "PREPARED_STATEMENTS", switch(), "true", "Off behind a PgBouncer older than 1.21 in transaction mode."
    )
    async_create: bool = setting(
        "ASYNC_CREATE",
        switch(),
        "true",
        "Whether a new snap is answered at once, with 202; else when it is finished, with 201.",
    )
    sync_wait: timedelta = setting(
        "SYNC_WAIT_MS",
        milliseconds(1, 600_000),
        "60000",
        "How long an answer waits for its snap, or its still; then it is 202 after all.",
    )
    worker_enabled: bool = setting("WORKER_ENABLED", switch(), "true", "Whether `serve` works the queue as well.")
    worker_id: str | None = setting(
        "WORKER_ID", optional(label(100)), "", "A label for people; the real id is fresh at every start."
    )
    worker_queues: tuple[str, ...] = setting(
        "WORKER_QUEUES", names("queue names", is_queue), "", "The queues to work; none named: all of them."
    )
    worker_concurrency: int = setting("WORKER_CONCURRENCY", whole(1, 1_000), "4", "Jobs run in threads at once.")
    worker_async_concurrency: int = setting(
        "WORKER_ASYNC_CONCURRENCY", whole(1, 10_000), "100", "`async def` jobs run at once."
    )
    worker_children: int = setting(
        "WORKER_CHILDREN", whole(1, 256), "2", "Warm child processes, each running one job at a time."
    )
    worker_commands: int = setting("WORKER_COMMANDS", whole(1, 256), "2", "Programs of `command` jobs run at once.")
    worker_max_stuck: int | None = setting(
        "WORKER_MAX_STUCK",
        optional(whole(1, 1_000)),
        "",
        "Threads that ignore their time limit before the worker wants a restart; none: WORKER_CONCURRENCY.",
    )
    worker_batch_size: int = setting("WORKER_BATCH_SIZE", whole(1, 10_000), "100", "The most jobs claimed at once.")
    worker_poll_delay: timedelta | None = setting(
        "WORKER_POLL_DELAY_MS",
        automatic(milliseconds(10, DAY_MS)),
        "auto",
        "How often to look for jobs unwoken; auto: 1000, and 5000 while LISTEN is proven alive.",
    )
    job_lock_ttl: timedelta = setting(
        "JOB_LOCK_TTL_MS", milliseconds(1, DAY_MS), "60000", "How long a silent worker keeps its jobs."
    )
    job_heartbeat_interval: timedelta = setting(
        "JOB_HEARTBEAT_INTERVAL_MS",
        milliseconds(1, DAY_MS),
        "10000",
        "How often a worker says it lives; under TTL/3.",
    )
    job_recovery_interval: timedelta = setting(
        "JOB_RECOVERY_INTERVAL_MS",
        milliseconds(1, DAY_MS),
        "15000",
        "How often to look for dead workers' jobs.",
    )
    job_max_attempts: int = setting("JOB_MAX_ATTEMPTS", whole(1, 1_000), "3", "Attempts before a job is a dead letter.")
    job_timeout: timedelta = setting(
        "JOB_TIMEOUT_MS", milliseconds(1, 7 * DAY_MS), "900000", "The longest an attempt may run."
    )
    job_memory_mb: int = setting(
        "JOB_MEMORY_MB",
        whole(0, 1_048_576),
        "512",
        "The memory of a job in a child or a command, where its kind says nothing; 0: no limit.",
    )
    job_connections: int = setting(
        "JOB_CONNECTIONS", whole(0, 200), "2", "Connections to the database that running jobs share; 0: none."
    )
    memory_free_min_mb: int = setting(
        "MEMORY_FREE_MIN_MB",
        whole(0, 1_048_576),
        "100",
        "What jobs in children and commands leave free: a kind that needs more than the rest is held back.",
    )
    child_max_jobs: int = setting(
        "CHILD_MAX_JOBS", whole(1, 1_000_000), "1000", "Jobs that a child runs before it is replaced."
    )
    child_max_rss_mb: int = setting(
        "CHILD_MAX_RSS_MB", whole(1, 1_048_576), "300", "A child that is bigger after a job is replaced."
    )
    child_nice: int = setting(
        "CHILD_NICE", whole(0, 19), "5", "How far children and commands stand behind the web in the queue for a core."
    )
    command_allow: tuple[str, ...] = setting(
        "COMMAND_ALLOW",
        names("programs (names or whole paths)", is_program),
        "",
        "The programs that `command` jobs may run; none listed: those that the code names, none that is computed.",
    )
    job_retention: timedelta = setting(
        "JOB_RETENTION_HOURS", hours(0, 87_600), "168", "How long finished jobs are kept; 0 keeps none."
    )
    retry_base: timedelta = setting(
        "RETRY_BASE_MS", milliseconds(1, DAY_MS), "10000", "The delay before the first retry."
    )
    retry_multiplier: float = setting(
        "RETRY_MULTIPLIER", number(1, 100), "2", "How much longer each further retry waits."
    )
    retry_max: timedelta = setting("RETRY_MAX_MS", milliseconds(1, 30 * DAY_MS), "300000", "The longest such delay.")
    retry_jitter: float = setting("RETRY_JITTER", number(0, 1), "0.2", "The part of the delay that is left to chance.")
    shutdown_grace: timedelta = setting(
        "SHUTDOWN_GRACE_MS", milliseconds(0, DAY_MS), "20000", "How long running jobs may finish at a stop."
    )
    fleet_plan: Path | None = setting(
        "FLEET_PLAN", optional(path()), "", "The plan of `snapapp supervisor`; none: one pool over all queues."
    )
    processors: tuple[str, ...] = setting(
        "PROCESSORS", names("dotted module names", is_module), "", "Further modules that declare processors."
    )
    product: bool | None = setting(
        "PRODUCT",
        optional(switch()),
        "",
        "Whether the product's tables and kinds are wanted, or the queue alone with the kinds of PROCESSORS; not set: "
        "the product, where it is installed.",
    )
    demo: bool = setting(
        "DEMO",
        switch(),
        "true",
        "Whether a new database begins with a demo video and three snaps of it; never in prod.",
        prod_default="false",
    )

    @property
    def has_product(self) -> bool:
        return find_spec("av") is not None if self.product is None else self.product

    # How we came by them; not settings themselves, so they do not take part in comparisons.
    given: Mapping[str, "Given"] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)
    looked_in: tuple[str, ...] = field(default=("the environment",), compare=False, repr=False)

    @classmethod
    def from_environment(cls) -> "Settings":
        return load(os.environ, EnvFile.beneath(os.environ))

    def explain(self) -> list[Explained]:
        return [self._explained(name, entry) for name, entry in TABLE.items()]

    def _explained(self, name: str, entry: Setting[Any]) -> Explained:
        origin = self.given[entry.name].origin if entry.name in self.given else Origin.DEFAULT
        return Explained(entry.name, entry.shown(getattr(self, name)), origin, entry.description)

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
        """What a child needs to fetch a video and to keep what it makes of it: no token, no secret of ours but the
        bucket's, and no file that might hold one."""
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
    {each.name: each.metadata["setting"] for each in fields(Settings) if "setting" in each.metadata}
)


# --- The environment file -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Given:
    """The text of one variable and where it stands."""

    text: str
    origin: Origin
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFile:
    """An environment file as it was found: its variables, its mistakes, and what to say of having looked."""

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
        """A file that somebody named must be readable. The default one need not be: systemd, which may read
        it, has given its contents to the service already; anybody else's command warns that it may not."""
        try:
            with path.open("rb") as file:
                content = file.read(ENV_FILE_MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            return cls._without(path, error, is_named=is_named)
        return cls.parse(content, str(path))

    @classmethod
    def _without(cls, path: Path, error: Exception, *, is_named: bool) -> "EnvFile":
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        said = f"{visible(str(path))} ({reason})"
        if is_named:
            return cls(looked=said, mistakes=(f"{PREFIX}ENV_FILE names a file that cannot be read: {said}",))
        if isinstance(error, FileNotFoundError):
            return cls(looked=said)
        return cls(looked=said, warnings=(f"{said}: its settings are not applied",))

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
    """KEY=VALUE as systemd's EnvironmentFile takes it; its errors show no value, which may be a secret."""
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


# --- Loading ------------------------------------------------------------------------------------------------


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
    if mistakes:
        raise SettingsError(mistakes)
    return settings


def _given(environ: Mapping[str, str], file: EnvFile | None) -> dict[str, Given]:
    """What is set at all: an empty variable counts as not there, so the file's value shows through."""
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
    """Control characters, NUL and the surrogates of undecodable bytes would fail far from here, if at all."""
    if not text.isprintable():
        raise UnreadableError("it holds characters that cannot be printed")
    return text


def _as_given(entry: Setting[Any], given: Given) -> str:
    value = " (value not shown)" if entry.secret else f"={quoted(given.text)}"
    return f"{entry.name}{value}" + (f" ({given.place})" if given.place else "")


# The fields behind each check of the queue's settings that concerns several, by how its sentence begins.
_TOGETHER = {
    "the lease must outlast": ("job_lock_ttl", "job_heartbeat_interval"),
    "retry maximum must not": ("retry_max", "retry_base"),
}


def _clashes(settings: Settings, wrong: set[str], given: Mapping[str, Given]) -> Iterator[str]:
    """What the queue says about settings that are fine one by one. A field that is wrong by itself holds its
    default here; what the default clashes with is no mistake."""
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
    """What one setting makes another one need."""
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
    """What production refuses to start on."""
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
        if name not in wrong and isinstance(getattr(settings, name), Path) and not _is_absolute(entry, given):
            yield f"{_as_set(entry, settings.env, given)} must be an absolute path in prod"


def _is_in_the_clear(address: str | None) -> bool:
    if address is None or not address.startswith("http://"):
        return False
    return urlsplit(address).hostname not in ("localhost", "127.0.0.1", "::1")


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


# --- The documentation --------------------------------------------------------------------------------------


def documentation() -> str:
    """docs/settings.md, whole; `make docs` writes it and a test compares."""
    rows = [_documented(entry) for entry in TABLE.values()]
    return "\n".join([*_DOCUMENTATION_HEAD, *rows, ""])


def _documented(entry: Setting[Any]) -> str:
    default = f"`{entry.default}`" if entry.default else "none"
    if entry.prod_default is not None:
        default += f", in prod `{entry.prod_default}`"
    secret = " Secret: never shown whole." if entry.secret else ""
    return f"| `{entry.name}` | {default} | {entry.reader.accepts} | {entry.description}{secret} |"


_DOCUMENTATION_HEAD = (
    "# Settings",
    "",
    "<!-- Made by `make docs` from the table in snapapp/settings/table.py; do not edit. -->",
    "",
    "Settings come from the environment. Beneath it, commands read the file that `SNAPAPP_ENV_FILE` names,",
    f"by default `{DEFAULT_ENV_FILE}`: lines of `KEY=VALUE` as systemd's `EnvironmentFile` takes them,",
    "comments after `#`, quotes where a value needs them. The environment wins; an empty value counts as not",
    "set. A file that was named must be readable; the default one may be missing, and if it is there but may",
    "not be read, you are warned.",
    "",
    "Wrong settings stop the start, every mistake named at once. A `SNAPAPP_` variable that is not listed",
    "here is only a warning. `snapapp config --explain` shows each value and where it comes from.",
    "",
    "In prod (`SNAPAPP_ENV=prod`) a database URL is required and paths must be absolute.",
    "",
    "| variable | default | accepted | meaning |",
    "|---|---|---|---|",
)
