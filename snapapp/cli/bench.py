"""The command bench. It has a module of its own, so that serve need not import the benchmarks."""

from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from snapapp import bench, postgres
from snapapp.settings.table import Settings


def run(arguments: Namespace, settings: Settings) -> int:
    """Measures on the server of SNAPAPP_DATABASE_URL, in databases of its own; without that setting, on a temporary
    server that is started for the command."""
    if settings.database_url:
        return bench.command(arguments, settings.database_url)
    with TemporaryDirectory(prefix="snapapp-bench-") as folder, postgres.start(Path(folder), create=True) as server:
        return bench.command(arguments, server.url)
