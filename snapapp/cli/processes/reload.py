"""`snapapp serve --reload`, for developers: serves in a child process that is started again when a file changes. This
process keeps the embedded PostgreSQL running meanwhile, because its start takes longest."""

import logging
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import snapapp
from snapapp import logs
from snapapp.jobs.os.parentage import ends_with_us
from snapapp.jobs.os.signals import Signals
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_LOOK_EVERY = 0.5  # seconds; one look at all files takes a few milliseconds
# a developer who waits for a reload does not want to wait for running jobs
_GRACE = {"SNAPAPP_SHUTDOWN_GRACE_MS": "1000"}

_State = dict[Path, int]  # when each file was changed


def run(_arguments: Namespace, settings: Settings) -> int:
    logs.begin(settings)
    with Signals() as signals, in_use(settings, create=True):
        while True:
            before = _state(settings)
            with _begun() as serving:
                changed = _wait_for_change(before, settings, serving, signals)
                if changed is None:
                    return _wait_for_end(serving, signals)
                _log.info("%s was changed: starting anew.", changed)
                serving.terminate()


def _begun() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "snapapp", "serve"]
    return subprocess.Popen(argv, env=_GRACE | os.environ, preexec_fn=ends_with_us())


def _wait_for_change(
    before: _State, settings: Settings, serving: subprocess.Popen[bytes], signals: Signals
) -> Path | None:
    """Waits for a change, and returns the first file that changed; None if a signal came first."""
    is_reported = False
    while not signals.noted:
        if serving.poll() is not None and not is_reported:
            _log.error("It ended with exit code %d. Waiting for a file to be changed.", serving.returncode)
            is_reported = True
        signals.wait(_LOOK_EVERY)
        now = _state(settings)
        if changed := sorted({path for path, _ in now.items() ^ before.items()}):
            return changed[0]
    return None


def _wait_for_end(serving: subprocess.Popen[bytes], signals: Signals) -> int:
    """Passes signals on until the serving process has ended; returns its exit code. Ctrl-C in a terminal reaches that
    process twice, and it counts the signal once."""
    while serving.poll() is None:
        for number in signals.take():
            serving.send_signal(number)
        signals.wait(_LOOK_EVERY)
    return serving.returncode


def _state(settings: Settings) -> _State:
    state = {}
    for path in _files(settings):
        try:
            state[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # an editor is replacing the file
            continue
    return state


def _files(settings: Settings) -> Iterator[Path]:
    """The files to watch: snapapp's own, the *.py files of the current folder, and the modules that the settings
    name."""
    package, here = Path(snapapp.__file__).parent, Path.cwd()
    yield from (path for path in package.rglob("*.*") if path.suffix != ".pyc")
    yield from here.glob("*.py")
    for name in {name.partition(".")[0] for name in settings.processors}:
        spec = PathFinder.find_spec(name, [*sys.path, str(here)])
        if spec and spec.origin:
            yield Path(spec.origin)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from Path(folder).rglob("*.py")
