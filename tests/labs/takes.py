"""A lab: the process is told to stop, again and again, while films come in and moments of them are worked on.

`python -m tests.labs takes --times 20` prints what became of every upload, every snap and every file. Beside this, the
lab of departures is about jobs and small requests.
"""

import hashlib
import random
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import psycopg

from tests.jobs.working import until
from tests.labs.departures import GRACE, Departures, asked_for, depart, told
from tests.labs.server import lab_server
from tests.media import material
from tests.running import Served

SENDERS = 4
PIECES = 12
MOMENT: dict[str, Any] = {
    "nickname": "ana",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "subject": {"id": "BR-1042"},
    "startSeconds": 0.5,
    "durationSeconds": 1.0,
    "snapshotDurationSeconds": 1.0,
}


@dataclass
class Tally(Departures):
    """What became of films and snaps besides."""

    answers: Counter[str] = field(default_factory=Counter)  # to requests that began before the signal
    films: dict[str, str] = field(default_factory=dict)  # id -> SHA-256 of what was sent, where the answer was heard
    snaps: set[str] = field(default_factory=set)  # for which an answer was heard
    found: list[str] = field(default_factory=list)  # what was wrong when all was done


class Sender(threading.Thread):
    """Sends one film after the other over a slow line, and marks a moment in each."""

    def __init__(self, port: int, film: bytes, tally: Tally, lock: threading.Lock, *, seed: int) -> None:
        super().__init__(daemon=True)
        self._home, self._film, self._tally, self._lock = f"http://127.0.0.1:{port}", film, tally, lock
        self._random = random.Random(seed)
        self.over = threading.Event()  # the signal was sent: what begins from now on may be refused

    def run(self) -> None:
        while not self.over.is_set():
            # a box that players skip makes each film another one
            film = self._film + struct.pack(">I4s16s", 24, b"free", self._random.randbytes(16))
            video = self._send("/v2/videos", 201, film, pause=self._random.uniform(0, 0.1))
            if video is not None:
                with self._lock:
                    self._tally.films[video["videoId"]] = hashlib.sha256(film).hexdigest()
                self._mark(video["videoId"])

    def _mark(self, video: str) -> None:
        wish = httpx.Request("POST", self._home, json=MOMENT | {"videoId": video}).content
        snap = self._send("/v2/snaps", 202, wish, pause=0.01)
        if snap is not None:
            with self._lock:
                self._tally.snaps.add(snap["snapId"])

    def _send(self, path: str, good: int, body: bytes, *, pause: float) -> dict[str, Any] | None:
        began_before = False

        def slowly() -> Iterator[bytes]:  # first asked for when the request's head has been sent
            nonlocal began_before
            began_before = not self.over.is_set()
            size = -(-len(body) // PIECES)
            for start in range(0, len(body), size):
                yield body[start : start + size]
                sleep(pause)

        kind = "application/json" if path == "/v2/snaps" else "application/octet-stream"
        try:
            answer = httpx.post(self._home + path, content=slowly(), headers={"Content-Type": kind}, timeout=GRACE)
            said: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            if began_before:
                self._broken(path, f"{type(error).__name__} {error}")
            return None
        if began_before:
            with self._lock:
                self._tally.answers[f"{path} {answer.status_code}"] += 1
            if answer.status_code != good:
                self._broken(path, f"{answer.status_code} {answer.text[:200]}")
        return said if answer.status_code == good else None

    def _broken(self, path: str, how: str) -> None:
        with self._lock:
            self._tally.broken.append(f"{path}: {how}")


# --- the lab ----------------------------------------------------------------------------------------------------


def serve(url: str, folder: Path) -> Served:
    return Served(folder, SNAPAPP_DATABASE_URL=url, SNAPAPP_DEMO="false")


def senders(port: int, lock: threading.Lock, *, film: bytes, tally: Tally, chance: random.Random) -> list[Sender]:
    return [Sender(port, film, tally, lock, seed=chance.randrange(2**32)) for _ in range(SENDERS)]


def run(times: int, seed: int = 1) -> Tally:
    tally, chance = Tally(), random.Random(seed)
    with lab_server("takes") as its:
        film = material.make(material.GOOD["faststart"], its.folder / "film.mp4").read_bytes()
        for _ in range(times):
            clients = partial(senders, film=film, tally=tally, chance=chance)
            depart(serve(its.url, its.folder), tally, clients, stream="/v2/events", busy_for=chance.uniform(1.5, 4))
        look(its.url, its.folder, its.db, tally)
    return tally


def look(url: str, folder: Path, db: psycopg.Connection[Any], tally: Tally) -> None:
    """Whatever was promised comes true in a last life, and nothing else is there."""
    with serve(url, folder).up() as served:
        left = "SELECT FROM snap_processing_job WHERE finished_at IS NULL LIMIT 1"
        until(lambda: not db.execute(left).fetchall(), within=600)
        with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", timeout=GRACE) as client:
            for video, its_hash in tally.films.items():
                kept = client.get(f"/v2/videos/{video}/content")
                if hashlib.sha256(kept.content).hexdigest() != its_hash:
                    tally.found.append(f"the film {video} is not what was sent: {kept.status_code}")
            for snap in tally.snaps:
                _look_at(client, snap, tally)
    charged = db.execute("SELECT id, kind, status, errors FROM snap_processing_job WHERE attempt_count <> 1").fetchall()
    tally.found += [f"a job was charged an attempt or failed: {job}" for job in charged]
    unfinished = {".incoming", "scratch"}  # where an upload and a job keep what is not finished
    strays = [path for path in folder.rglob("*") if path.is_file() and unfinished & set(path.parts)]
    tally.found += [f"a file was left: {path}" for path in strays]


def _look_at(client: httpx.Client, snap: str, tally: Tally) -> None:
    shown = client.get(f"/v2/snaps/{snap}").json()
    if shown["status"] != "COMPLETED":
        tally.found.append(f"the snap {snap} is {shown['status']}: {shown}")
        return
    pictures = [frame["path"] for frame in shown["frames"]]
    broken = [picture for picture in pictures if client.get(picture).status_code != 200]
    if not pictures or broken:
        tally.found.append(f"the snap {snap} has {len(pictures)} frames, of which {len(broken)} are not there")


def problems(tally: Tally) -> list[str]:
    return tally.problems() + tally.found


def main() -> int:
    arguments = asked_for(__doc__, times=20)
    tally = run(arguments.times, arguments.seed)
    besides = [
        f"answers to what began before the signal: {dict(tally.answers)}, broken: {len(tally.broken)}",
        f"films {len(tally.films)}, snaps {len(tally.snaps)}",
    ]
    return told(tally, besides, problems(tally))
