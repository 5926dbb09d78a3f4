"""What a process needs to work the queue: settings, a registry, an engine for the hooks, and one worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import sqlalchemy
from sqlalchemy import Connection

from snapapp.jobs import context as contexts
from snapapp.jobs import registry as registries
from snapapp.jobs.courtesy import Courtesy
from snapapp.jobs.database import KEEPALIVE, PREPARE_AFTER, Row, connect, sqlalchemy_url
from snapapp.jobs.events import Events
from snapapp.jobs.intake import Defaults
from snapapp.jobs.lender import job_engine
from snapapp.jobs.model import Job
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import Worker

_HOOK_DEADLINE = timedelta(seconds=30)


class Runtime:
    """Builds workers. `context` is the application's one hook around every attempt, commit and failed hook: its tenant,
    say. See `docs/context.md`."""

    def __init__(
        self,
        settings: JobsSettings,
        *,
        registry: Registry | None = None,
        events: Events | None = None,
        context: contexts.Hook | None = None,
        courtesy: Courtesy | None = None,
    ) -> None:
        self.settings = settings
        self.courtesy = courtesy or Courtesy()
        self.registry = registries.default if registry is None else registry
        self.events = events or Events()
        self.context = context
        if context and any(one.executor == "process" for one in self.registry):
            contexts.check_importable(context)
        self.lent = job_engine(settings)
        self._engine = sqlalchemy.create_engine(
            sqlalchemy_url(settings.database_url),
            pool_size=settings.hooks,
            max_overflow=0,
            pool_timeout=30,
            pool_pre_ping=True,
            hide_parameters=True,  # payloads and results do not belong in error messages
            connect_args={
                **KEEPALIVE,
                "application_name": "snapapp hooks",
                "prepare_threshold": PREPARE_AFTER if settings.prepared_statements else None,
            },
        )
        Defaults.max_attempts = settings.max_attempts

    def worker(self) -> Worker:
        return Worker(
            self.settings,
            self.registry,
            connect=self.connect,
            transaction=self.transaction,
            events=self.events,
            courtesy=self.courtesy,
            lent=self.lent,
            context=self.context,
        )

    def connect(self, purpose: str) -> psycopg.Connection[Row]:
        return connect(
            self.settings.database_url,
            name=f"snapapp {purpose}",
            prepared_statements=self.settings.prepared_statements,
        )

    @contextmanager
    def transaction(self, _job: Job) -> Iterator[Connection]:
        """The transaction in which a job is settled and its hook runs, with a deadline that the server keeps."""
        with self._engine.begin() as connection:
            deadline = int(_HOOK_DEADLINE.total_seconds() * 1000)
            # the second one for a process that is frozen in here: it must not hold its row's lock for ever
            connection.exec_driver_sql(
                f"SELECT set_config('statement_timeout', '{deadline}', true),"
                f" set_config('idle_in_transaction_session_timeout', '{deadline}', true)"
            )
            yield connection

    def close(self) -> None:
        self._engine.dispose()
        self.lent.dispose()
