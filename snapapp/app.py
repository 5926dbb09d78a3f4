"""The composition root: one process that serves the API and works the queue. `uvicorn snapapp.app:app` is enough."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from snapapp import __version__, api, logs, web
from snapapp.api.http import errors, openapi
from snapapp.api.http.requests.access import Access
from snapapp.api.http.requests.exchange import request_id
from snapapp.api.http.requests.middleware import Requests
from snapapp.api.http.requests.route_counts import Traffic
from snapapp.api.http.requests.tokens import Keys
from snapapp.api.internal.actuator.process_metrics import Numbers
from snapapp.errors import SettingsError
from snapapp.jobs.os.shortage import is_lack_of_threads
from snapapp.process.health import Health
from snapapp.process.loop_lag import Lag
from snapapp.process.monolith import Monolith
from snapapp.process.shutdown import Shutdown
from snapapp.process.systemd import Notices
from snapapp.settings.loading import from_environment
from snapapp.settings.table import Settings

_READABLE = ("X-Request-Id", "Content-Range", "Content-Disposition", "Content-Location", "ETag", "Retry-After")
_OF_UPLOADS = ("Location", "Upload-Offset", "Upload-Length", "Upload-Metadata", "Upload-Expires")
_OF_TUS = ("Tus-Resumable", "Tus-Version", "Tus-Extension", "Tus-Max-Size")
# seconds that a busy thread keeps others waiting; the default of 5 ms is as long as a whole request
_SWITCH_INTERVAL = 0.0005


def create_app(settings: Settings, monolith: Monolith | None = None, noted: Sequence[int] = ()) -> FastAPI:
    """The application around a monolith, which it starts if that is not done yet. `noted` are the signals that the
    caller has received. The caller goes on to append to it until the application has its own signal handlers."""
    monolith = monolith or Monolith(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        health = Health(monolith)
        with Shutdown(monolith) as shutdown, app.state.lag, Notices(health.is_worth_a_restart) as notices:
            app.state.shutdown = shutdown
            sys.setswitchinterval(_SWITCH_INTERVAL)
            await asyncio.to_thread(monolith.start)
            app.state.health = health
            shutdown.serving(noted)
            notices.ready()
            try:
                yield
            finally:
                notices.stopping()
                try:
                    await asyncio.to_thread(monolith.stop, shutdown.reason)
                except RuntimeError as error:
                    if not is_lack_of_threads(error):
                        raise
                    monolith.stop(shutdown.reason)
                app.state.health.close()

    app = FastAPI(
        title="snapapp",
        version=__version__,
        summary="Marks moments in videos, and works the queue that turns them into evidence.",
        lifespan=lifespan,
        openapi_url=None,  # `openapi.describe` adds it
        docs_url=None,  # web/ has our own page
        redoc_url=None,
        # Our middleware does the tracing: this one would record whole paths, with the tokens of shared links.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.monolith = monolith
    app.state.keys = Keys.of(settings.internal_token, settings.internal_read_token)
    app.state.traffic = Traffic()
    app.state.lag = Lag(monolith.web_priority)
    app.state.numbers = Numbers(monolith, app.state.traffic, app.state.lag)
    logs.tell("requestId", request_id)
    errors.add_handlers(app)
    api.add_routes(app)
    app.routes.extend(web.router.routes)
    openapi.describe(app)
    app.add_middleware(
        Requests,
        web_priority=monolith.web_priority,
        traffic=app.state.traffic,
        keys=app.state.keys,
        access=Access(settings.internal_allow),
        upload_max=settings.upload_max_mb * 1024 * 1024,
        is_leaving=lambda: monolith.is_leaving,
    )
    if settings.cors_allowed_origins:
        # the outermost middleware, so that a page can read refusals too; without credentials, because cookies are only
        # for our own pages
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_allowed_origins,
            allow_methods=["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=[*_READABLE, *_OF_UPLOADS, *_OF_TUS],
        )
    return app


def __getattr__(name: str) -> Any:
    """Makes `app` when a server asks for it, so that importing this module does not read the environment."""
    if name != "app":
        raise AttributeError(name)
    try:
        settings = from_environment()
    except SettingsError as error:
        sys.exit(f"snapapp: {error}")
    logs.begin(settings)
    app = globals()["app"] = create_app(settings)
    gc.freeze()  # it stays: a full collection that looks through it would stop all threads for a sixth of a second
    return app
