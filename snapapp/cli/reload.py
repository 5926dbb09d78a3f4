"""`snapapp serve --reload`, for whoever changes the code: serves in a process that is started anew when a file changes.
The embedded PostgreSQL is held here meanwhile, because starting it takes longer than all the rest."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import snapapp
from snapapp.jobs.os.signals import Signals
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_LOOK_EVERY = 0.5  # seconds; a look at all files takes some milliseconds
_GRACE = {"SNAPAPP_SHUTDOWN_GRACE_MS": "1000"}  # whoever waits for a reload does not want to wait for jobs as well

_State = dict[Path, int]  # when each file was changed


def run(settings: Settings) -> int:
    with Signals() as signals, in_use(settings, create=True):
        while True:
            before = _state(settings)
            with subprocess.Popen([sys.executable, "-m", "snapapp", "serve"], env=_GRACE | os.environ) as serving:
                changed = _changed(before, settings, serving, signals)
                if changed is None:
                    return _ended(serving, signals)
                _log.info("%s was changed: starting anew.", changed)
                serving.terminate()


def _changed(before: _State, settings: Settings, serving: subprocess.Popen[bytes], signals: Signals) -> Path | None:
    """The first file that was changed; None where a signal came first."""
    told = False
    while not signals.noted:
        if serving.poll() is not None and not told:
            _log.error("It ended with exit code %d. Waiting for a file to be changed.", serving.returncode)
            told = True
        signals.wait(_LOOK_EVERY)
        now = _state(settings)
        if changed := sorted({path for path, _ in now.items() ^ before.items()}):
            return changed[0]
    return None


def _ended(serving: subprocess.Popen[bytes], signals: Signals) -> int:
    """Passes signals on until the serving process has ended. One from a terminal reaches it twice and counts once."""
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
        except FileNotFoundError:  # an editor that replaces it
            continue
    return state


def _files(settings: Settings) -> Iterator[Path]:
    """Ours, those beside which we were started, and the modules that the settings name."""
    package, here = Path(snapapp.__file__).parent, Path.cwd()
    yield from (path for path in package.rglob("*.*") if path.suffix != ".pyc")
    yield from here.glob("*.py")
    for name in {name.partition(".")[0] for name in settings.processors}:
        spec = PathFinder.find_spec(name, [*sys.path, str(here)])
        if spec and spec.origin:
            yield Path(spec.origin)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from Path(folder).rglob("*.py")
