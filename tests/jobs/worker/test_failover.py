"""The server stands still and does not hang up, while another one has taken its place."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy

from snapapp.jobs import enqueue
from snapapp.jobs.registry import Registry
from snapapp.jobs.worker import failover
from tests.factory import Db, scalar
from tests.jobs.working import Heard, until, until_status, working

pytestmark = pytest.mark.direct


class Frozen:
    """A way to the server that can be frozen: from then on nothing is passed on, and nobody new is let in."""

    def __init__(self, folder: Path, server: str) -> None:
        self._server = server
        self._frozen = threading.Event()
        self._ends: list[socket.socket] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / ".s.PGSQL.5432"))
        self._door.listen()
        threading.Thread(target=self._let_in, daemon=True).start()

    def freeze(self) -> None:
        self._frozen.set()
        with suppress(OSError):  # it is frozen already
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def close(self) -> None:
        self.freeze()
        for end in self._ends:
            with suppress(OSError):  # the other side has gone
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _let_in(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._ends += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while (said := source.recv(65536)) and not self._frozen.is_set():
                target.sendall(said)
            if not self._frozen.is_set():
                target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def frozen(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Frozen, str]]:
    """A way that can be frozen, and the URL that names it before the server itself."""
    folder = tmp_path_factory.mktemp("f")
    its = sqlalchemy.make_url(url)
    server, port = str(its.query["host"]), str(its.query["port"])
    both = its.update_query_dict({"host": f"{folder},{server}", "port": f"5432,{port}"})
    with closing(Frozen(folder, f"{server}/.s.PGSQL.{port}")) as way:
        yield way, both.render_as_string(hide_password=False)


def test_a_worker_leaves_a_server_that_stands_still_for_the_one_that_new_connections_lead_to(
    frozen: tuple[Frozen, str], db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "_LONGEST", 1.0)
    monkeypatch.setattr("snapapp.jobs.worker.worker._LOOK_FOR_FAILOVER_EVERY", timedelta(seconds=0.2))
    way, url = frozen
    registry.processor("quick")(lambda _: "done")
    with working(url, registry) as (_, heard):
        until_status(db, enqueue(db, "quick") or 0, "COMPLETED")
        way.freeze()
        until_status(db, enqueue(db, "quick") or 0, "COMPLETED", within=30)
        assert said_of(heard)


def test_a_server_that_is_only_slow_is_not_left(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "_LONGEST", 0.2)
    monkeypatch.setattr("snapapp.jobs.worker.worker._LOOK_FOR_FAILOVER_EVERY", timedelta(seconds=0.1))
    registry.processor("quick")(lambda _: "done")
    with working(url, registry) as (_, heard):
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker") == 1)
        with db.transaction():
            db.execute("LOCK TABLE job_worker")
            until(lambda: scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
            threading.Event().wait(1)
        until_status(db, enqueue(db, "quick") or 0, "COMPLETED")
    assert not said_of(heard)


def said_of(heard: Heard) -> list[str]:
    return [str(event.facts) for event in heard.all("worker.error") if "leave a server" in str(event.facts)]
