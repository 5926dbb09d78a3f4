"""A server that stands still and does not hang up, while another one has taken its place."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import sqlalchemy


class Way:
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


class Frozen(NamedTuple):
    way: Way
    url: str  # names the way, and after it the server itself


@contextmanager
def may_freeze(url: str, folder: Path) -> Iterator[Frozen]:
    its = sqlalchemy.make_url(url)
    server, port = str(its.query["host"]), str(its.query["port"])
    both = its.update_query_dict({"host": f"{folder},{server}", "port": f"5432,{port}"})
    with closing(Way(folder, f"{server}/.s.PGSQL.{port}")) as way:
        yield Frozen(way, both.render_as_string(hide_password=False))
