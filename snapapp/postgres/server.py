"""One server for all processes of a data directory: the first process starts it, the last one that leaves stops it."""

import contextlib
import logging
import threading
from datetime import timedelta
from pathlib import Path
from typing import Self
from urllib.parse import quote

from snapapp.errors import PostgresError
from snapapp.postgres import account, cluster, locks, postmaster
from snapapp.postgres.home import Home, explained

_log = logging.getLogger(__name__)

# Longer than the longest start, so that a process that waits for another one's start gets a server, not an error.
_ADMITTED_WITHIN = postmaster.STARTED_WITHIN + timedelta(minutes=1)
_DISMISSED_WITHIN = timedelta(seconds=30)
_LOOK_EVERY = timedelta(seconds=2)  # a look reads two small files
_LONGEST_PAUSE = timedelta(minutes=1)  # between two starts that fail


class Server:
    """The share of this process in the running server. If the process dies without `stop`, the kernel gives the share
    back."""

    def __init__(self, home: Home, share: locks.Share, url: str) -> None:
        self.url = url
        self._home = home
        self._share: locks.Share | None = share  # written by stop, under the lock
        self._lock = threading.Lock()  # makes a second stop wait until the first one has ended
        self._keeper: threading.Thread | None = None
        self._leaving = threading.Event()

    def keep(self) -> None:
        """From now until `stop`, the server is started again whenever its process has died."""
        self._keeper = threading.Thread(target=self._watch, name="postgres-keeper", daemon=True)
        self._keeper.start()

    def revive(self) -> None:
        """Starts the server again if its process has died, unless this process has left it or its directory was
        removed."""
        with self._lock:  # a stop waits for a start that is under way
            if self._share is None or postmaster.find(self._home.cluster) or not cluster.stands(self._home):
                return
            someone_else_does = contextlib.suppress(locks.GateBusyError)
            with explained(self._home), someone_else_does, locks.gate(self._home.gate, within=_LOOK_EVERY):
                running = postmaster.start(self._home)
                _log.warning("PostgreSQL had died and serves %s again as pid %d.", self._home.cluster, running.pid)

    def stop(self) -> None:
        """Gives the share back, and stops the server if no other process has one. Bounded in time."""
        self._leaving.set()
        with self._lock:
            share, self._share = self._share, None
            if share is not None:
                _leave(self._home, share)
        if self._keeper is not None:
            self._keeper.join()

    def _watch(self) -> None:
        pause = _LOOK_EVERY
        while not self._leaving.wait(pause.total_seconds()):
            try:
                self.revive()
                pause = _LOOK_EVERY
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                pause = min(pause * 2, _LONGEST_PAUSE)
                is_unknown = not isinstance(error, PostgresError)
                _log.error("PostgreSQL has died; a start is tried in %s again: %s", pause, error, exc_info=is_unknown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(data_dir: Path, *, create: bool) -> Server:
    """Starts the directory's server or adopts the running one; only `create` lets it make a new cluster."""
    home = Home.at(data_dir)
    with explained(home):
        if create:
            home.root.mkdir(parents=True, exist_ok=True)
        elif not home.cluster.exists() and not home.root.is_file():
            raise PostgresError(_nothing_here(home))
        with locks.gate(home.gate, within=_ADMITTED_WITHIN):
            return _enter(home, create=create)


def _enter(home: Home, *, create: bool) -> Server:
    share = locks.Share(home.adopters)
    try:
        if not cluster.stands(home):
            if not create:
                raise PostgresError(_nothing_here(home))
            cluster.create(home, account.choose(home))
            _log.info("A new PostgreSQL cluster was made in %s.", home.cluster)
        running = postmaster.start(home)
    except Exception:
        share.release()  # a server that is still recovering goes on, and the next start adopts it
        raise
    except BaseException:  # Ctrl-C: the server is not wanted any more
        _stop_if_last(home, share)
        raise
    _log.info("PostgreSQL serves %s as pid %d.", home.cluster, running.pid)
    return Server(home, share, _url(running))


def _leave(home: Home, share: locks.Share) -> None:
    try:
        # A server whose directory was removed notices it within a minute and ends by itself.
        gone = contextlib.suppress(FileNotFoundError)
        with explained(home), gone, locks.gate(home.gate, within=_DISMISSED_WITHIN):
            _stop_if_last(home, share)
    except locks.GateBusyError:
        _log.info("PostgreSQL in %s is just being started by another process, which stops it.", home.cluster)
    finally:
        share.release()


def _stop_if_last(home: Home, share: locks.Share) -> None:
    try:
        if share.is_the_last():
            postmaster.stop(home.cluster)
            _log.info("PostgreSQL in %s was stopped: nobody used it any more.", home.cluster)
    finally:
        share.release()  # before the gate is released, so that the next process counts the shares right


def _url(running: postmaster.Postmaster) -> str:
    host = quote(str(running.socket_folder), safe="")
    return f"postgresql://postgres@/{cluster.DATABASE}?host={host}&port={running.port}"


def _nothing_here(home: Home) -> str:
    return (
        f"There is no database in {home.cluster}. Type `make run` to make one, set SNAPAPP_DATA_DIR to the "
        f"directory that has it, or set SNAPAPP_DATABASE_URL to a PostgreSQL server of yours."
    )
