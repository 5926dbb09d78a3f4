"""The parts of `snapapp serve` besides its routes: the database, the web's connections, and the worker. While the
database is away the process stays up, says what it waits for, and goes on when the database is back."""

import logging
import threading
from contextlib import ExitStack

import psycopg
import sqlalchemy.exc
from sqlalchemy import Engine

from snapapp import logs, storage
from snapapp.demo import first_minute
from snapapp.domain import tenants
from snapapp.errors import SnapError
from snapapp.jobs import Worker, doctor, tracing
from snapapp.jobs.process import foreground
from snapapp.jobs.retry import pause_after
from snapapp.jobs.worker.capacity.web_priority import WebPriority
from snapapp.postgres import connections, database, schema
from snapapp.postgres.in_use import in_use
from snapapp.process import alarm
from snapapp.processing import checks, loading
from snapapp.settings.table import Environment, Settings
from snapapp.signing import MediaLinks, NoSecret, secret_kept_in

_log = logging.getLogger(__name__)

_OPEN_WITHIN = 30.0  # seconds that a start waits for a database that answers; a migration may take longer
_SAY_AGAIN = 20  # failures between two log lines: about a minute

Away = (psycopg.OperationalError, sqlalchemy.exc.OperationalError)


class Monolith:
    """The process's parts. A second start() or stop() does nothing. `web`, `url` and `links` exist after start,
    `worker` as soon as the database answers."""

    url: str
    web: Engine
    links: MediaLinks

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.events = logs.events_to_log(settings)
        self.web_priority = WebPriority()
        self.storage = storage.from_settings(settings)
        # The opening thread writes these two.
        self.worker: Worker | None = None
        self.waits_for: str | None = "the database was not asked yet"
        self.is_leaving = False
        self.hurried_by: int | None = None  # the second signal, if one cut the drain short
        self._is_started = False
        self._failure: SnapError | None = None
        self._has_looked = threading.Event()  # the database answered, or the first attempt failed
        self._leaving = threading.Event()
        self._opening = threading.Thread(target=self._open, name="opening", daemon=True)
        self._to_close = ExitStack()
        self._turn = threading.Lock()  # one stop at a time

    def start(self) -> None:
        """Starts the parts, and the embedded server if that is in use. Another server may be away; but if it answers
        and refuses, that is an error."""
        if self._is_started:
            return
        self._is_started = True
        loading.load(self.settings)
        loading.trace(self.settings)
        self.url = self._to_close.enter_context(in_use(self.settings, create=True, keep=True))
        self.web = self._to_close.enter_context(connections.web_engine(self.url, self.settings))
        try:
            self.links = _links(self.settings)  # now: a read must not fail because the disk is full meanwhile
        except NoSecret:
            self.stop()
            raise
        self._opening.start()
        self._keep_watch()
        self._has_looked.wait(_OPEN_WITHIN)
        self._has_looked.set()  # from now on a failure is tried again instead of raised
        if self._failure:
            self.stop()
            raise self._failure

    def leave(self, reason: str = "stopped", *, hurry: bool = False) -> None:
        """Stops the worker: it claims no more, lets running jobs finish within the grace, and hands back the rest.
        Requests are still served."""
        is_news, self.is_leaving = not self._leaving.is_set(), True
        self._leaving.set()
        if self.worker and hurry:
            self.worker.hurry()
        elif self.worker and is_news:
            foreground.say_how_long(self.worker)
        with self._turn:
            if self._opening.is_alive():
                self._opening.join(timeout=5)
            if self.worker:
                self.worker.stop(reason=reason)

    def stop(self, reason: str = "stopped") -> None:
        self.leave(reason)
        with self._turn:
            self._to_close.close()
            tracing.stop()

    def _keep_watch(self) -> None:
        if alarm.Alarm.is_wanted(self.settings):
            watch = alarm.Alarm(self.settings, lambda: doctor.examine(self.url, checks.facts(self.settings, self.url)))
            watch.start()
            self._to_close.callback(watch.stop)

    # --- opening ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        failures = 0
        while not self._leaving.is_set():
            try:
                self._begin()
                self.waits_for = None
                return
            except Away as error:
                self._note_failure(str(error), failures)
            except SnapError as error:
                if self._has_looked.is_set():
                    self._note_failure(str(error), failures)
                else:  # `start` raises it; but `start` may have stopped waiting just now, so the loop goes on
                    self._failure, self.waits_for = error, str(error)
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                _log.exception("The database cannot be prepared.")
                self._note_failure(f"{type(error).__name__}: {error}", failures)
            finally:
                self._has_looked.set()
            failures += 1
            self._leaving.wait(pause_after(failures))
        self._has_looked.set()  # a `start` that is waiting while the process leaves must not wait for a look

    def _begin(self) -> None:
        lower = "SNAPAPP_WEB_CONNECTIONS or SNAPAPP_WORKER_CONCURRENCY"
        needed = database.connections_needed(self.settings)
        database.check_budget(self.url, needed, who="This process", lower=lower)
        bring_up_to_date(self.url, self.settings)
        if self.settings.env is Environment.PROD:
            refuse_known_token(self.url, self.settings)
        if not self.settings.worker_enabled:
            _log.info("The worker is off: SNAPAPP_WORKER_ENABLED is false.")
            return
        web_priority = self.web_priority if self.settings.web_first else None
        if not self._leaving.is_set():
            worker = Worker(self.settings.jobs(self.url), events=self.events, web_priority=web_priority)
            worker.start()
            self.worker = worker

    def _note_failure(self, why: str, failures: int) -> None:
        self.waits_for = " ".join(why.split())
        if failures % _SAY_AGAIN == 0:
            _log.warning("Not ready yet, trying again until it works: %s", self.waits_for)


def _links(settings: Settings) -> MediaLinks:
    secrets = settings.signing_secret or (secret_kept_in(settings.data_dir),)
    return MediaLinks(secrets, settings.media_url_ttl)


def bring_up_to_date(url: str, settings: Settings) -> None:
    """Migrates the database in dev. In prod it only checks the schema: there the deploy migrates, when it wants to."""
    if settings.env is not Environment.DEV:
        schema.require(url)
    elif not schema.is_current(url):
        # imported late: Alembic takes 9 MB and a tenth of a second, and most starts have nothing to migrate
        from snapapp.postgres import migrate

        migrate.migrate(url, if_new=first_minute.order if settings.demo else None)


def refuse_known_token(url: str, settings: Settings) -> None:
    if not settings.require_api_token:
        _log.warning("Whoever knows a tenant's code may act as that tenant: SNAPAPP_REQUIRE_API_TOKEN is false.")
        return
    with connections.transaction(url) as db:
        code = tenants.with_development_token(db)
    if code is not None:
        raise SnapError(
            f"The tenant {code} still has the token that everybody knows, and SNAPAPP_REQUIRE_API_TOKEN is true: "
            f"type `snapapp tenants rotate-token {code}`."
        )
