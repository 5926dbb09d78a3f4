"""Builds workers of a process from its settings, its registry of kinds and its engines."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from snapapp.jobs import context as contexts
from snapapp.jobs import registry as registries
from snapapp.jobs.adding import Defaults
from snapapp.jobs.events import Events
from snapapp.jobs.model import Job
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import Row, connect
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.capacity.web_priority import WebPriority
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.worker import Worker

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_HOOK_DEADLINE = timedelta(seconds=30)


class Runtime:
    """`context` is the application's hook around every attempt and every commit and failed hook, for example to set the
    tenant: see `docs/context.md`."""

    def __init__(
        self,
        settings: JobsSettings,
        *,
        registry: Registry | None = None,
        events: Events | None = None,
        context: contexts.Hook | None = None,
        web_priority: WebPriority | None = None,
    ) -> None:
        self.settings = settings
        self.web_priority = web_priority or WebPriority()
        self.registry = registries.default if registry is None else registry
        self.events = events or Events()
        self.context = context
        registries.check_importable(self.registry)
        if context and any(one.executor == "process" for one in self.registry):
            contexts.check_importable(context)
        self._engines: dict[str, Engine] = {}
        self._turn = threading.Lock()  # for _engines
        Defaults.max_attempts = settings.max_attempts

    def worker(self) -> Worker:
        return Worker(self.parts())

    def parts(self, registry: Registry | None = None) -> WorkerParts:
        """The parts of another worker. `registry`: for a worker that runs only some of the kinds."""
        return WorkerParts(
            settings=self.settings,
            registry=self.registry if registry is None else registry,
            connect=self.connect,
            transaction=self.transaction,
            job_engine=partial(self._engine, "jobs"),
            events=self.events,
            web_priority=self.web_priority,
            context=self.context,
        )

    def connect(self, purpose: str) -> psycopg.Connection[Row]:
        return connect(
            self.settings.database_url,
            name=f"snapapp {purpose}",
            prepared_statements=self.settings.prepared_statements,
        )

    @contextmanager
    def transaction(self, _job: Job) -> "Iterator[Connection]":
        """The transaction in which a job is settled and its hook runs, with time limits on the server."""
        with self._engine("hooks").begin() as connection:
            deadline = int(_HOOK_DEADLINE.total_seconds() * 1000)
            # idle_in_transaction: a process that is frozen in here must not hold the row's lock for ever.
            # force_custom_plan: a generic plan made for a small table would be kept after the table has grown.
            connection.exec_driver_sql(
                f"SELECT set_config('statement_timeout', '{deadline}', true),"
                f" set_config('idle_in_transaction_session_timeout', '{deadline}', true),"
                " set_config('plan_cache_mode', 'force_custom_plan', true)"
            )
            yield connection

    def _engine(self, purpose: str) -> "Engine":
        """The engine for this purpose, made on first use: SQLAlchemy takes 30 MB and doubles the time of a start, and
        most workers never need it."""
        with self._turn:
            if purpose not in self._engines:
                from snapapp.jobs.worker import engines

                open_engine = {"hooks": engines.hook_engine, "jobs": engines.job_engine}[purpose]
                self._engines[purpose] = open_engine(self.settings)
            return self._engines[purpose]

    def close(self) -> None:
        with self._turn:
            for engine in self._engines.values():
                from snapapp.jobs.worker import engines  # imported already, if there is an engine

                engines.close(engine)
