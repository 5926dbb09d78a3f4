"""The command bench. In a module of its own, because serve has no use for what it takes."""

from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from snapapp import bench, logs, postgres
from snapapp.bench import web
from snapapp.postgres.migrate import migrate
from snapapp.settings.table import LogLevel, Settings

_FURTHER = {"web": web.measure}


def run(arguments: Namespace, settings: Settings) -> int:
    """On the server that is set, in databases of its own; else on one made for it, which nobody else uses."""
    logs.begin(settings, at_least=LogLevel.WARNING)
    if settings.database_url:
        return bench.command(arguments, settings.database_url, migrate, _FURTHER)
    with TemporaryDirectory(prefix="snapapp-bench-") as folder, postgres.start(Path(folder), create=True) as server:
        return bench.command(arguments, server.url, migrate, _FURTHER)
