"""The product as its clients meet it: requests that mean well, and snaps in any state, as the processor makes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import sqlalchemy
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from snapapp.domain import snaps, tenants
from snapapp.domain.snaps import Evidence
from snapapp.postgres import database
from snapapp.process.monolith import Monolith
from snapapp.storage import keys
from tests.factory import Db, move, scalar

SNAPS = "/v2/snaps"
VIDEO_URL = "https://videos.example/brete-7.mp4"
OTHER = {"X-Assinatura-Codigo": "other"}
NOBODY = "00000000-0000-4000-8000-000000000000"

PROBE = {
    "compatible": True,
    "container_format": "mov,mp4,m4a,3gp,3g2,mj2",
    "codec_name": "h264",
    "width": 1920,
    "height": 1080,
    "duration_seconds": 61.4,
    "source_fps": 29.97,
    "pixel_format": "yuv420p",
    "reason": None,
    "rotation": 90,
    "plays_in_browsers": True,
}


def body(**changes: Any) -> dict[str, Any]:
    """A new snap; `...` leaves a field out."""
    given = {
        "videoUrl": VIDEO_URL,
        "nickname": "ana",
        "email": "ana@fazenda.example",
        "dataFilmagem": "2026-03-01T08:15:00-03:00",
        "startSeconds": 12.48,
        "durationSeconds": 1,
        "subject": {"id": "BR-1042", "attributes": [text("raca", "Nelore"), number("peso_referencia", 412.5)]},
    } | changes
    return {name: value for name, value in given.items() if value is not ...}


def text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "type": "string", "stringValue": value}


def number(key: str, value: float) -> dict[str, Any]:
    return {"key": key, "type": "number", "numberValue": value}


def mark(client: TestClient, headers: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """A snap, marked over HTTP."""
    answer = client.post(SNAPS, json=body(**changes), headers=headers)
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


def shown(client: TestClient, snap: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
    answer = client.get(f"{SNAPS}/{snap['snapId']}", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def monolith(client: TestClient) -> Monolith:
    monolith: Monolith = client.app.state.monolith  # type: ignore[attr-defined]  # it is a FastAPI
    return monolith


@contextmanager
def as_tenant(engine: sqlalchemy.Engine, code: str = "default") -> Iterator[Session]:
    with engine.begin() as connection, database.scope(connection, code) as own:
        yield own


def add_tenant(engine: sqlalchemy.Engine, code: str = "other") -> str:
    """Its token."""
    with database.session(engine) as session, session.begin():
        _, token = tenants.add(session, code, code.title())
    return token


def job_of(snap: dict[str, Any]) -> int:
    job_id: int = snap["job"]["jobId"]
    return job_id


FILES = ("frame_00001.jpg", "clean_00001.jpg", "snapshot.mp4", "poster.jpg", "thumbnail.jpg")


def complete(
    client: TestClient,
    engine: sqlalchemy.Engine,
    row: Db,
    snap: dict[str, Any],
    code: str = "default",
    *,
    artefact_bytes: int = 19,
) -> None:
    """As its job would: the files first, then the row and the job."""
    snap_id = UUID(snap["snapId"])
    prefix = keys.of_attempt(snap_id, 2)
    for name in FILES:
        monolith(client).storage.put(prefix + name, f"the bytes of {name}".encode())
    evidence = Evidence(
        probe=PROBE,
        resolved_start_seconds=12.479,
        frames=[
            {
                "index": 1,
                "timestamp_seconds": 12.479,
                "file_name": "frame_00001.jpg",
                "clean_file_name": "clean_00001.jpg",
                "quality": {"black": False, "frozen": False, "blurred": True, "sharpness": 3.5},
                "is_best": True,
            }
        ],
        clip={"file_name": "snapshot.mp4", "duration_seconds": 2.0, "width": 1280, "height": 720, "frame_count": 60},
        extras={
            "poster": "poster.jpg",
            "thumbnail": "thumbnail.jpg",
            "thumbhash": "3OcRJYB4d3h/iIeHeEh3eIhw+j2w",
            "artefacts": [{"file_name": "frame_00001.jpg", "sha256": "ab" * 32, "size_bytes": artefact_bytes}],
        },
        media_prefix=prefix,
    )
    with as_tenant(engine, code) as own:
        assert snaps.complete(own, code, snap_id, evidence)
    move(row, job_of(snap), status="COMPLETED", finished_at="now", attempt_count=1)


def fail(
    row: Db, snap: dict[str, Any], error: str = "Unusable: The video ends at 3.2 s.", status: str = "FAILED"
) -> None:
    """As its job would, at its end."""
    move(row, job_of(snap), status=status, finished_at="now", attempt_count=1, last_error=error)


def count(row: Db, table: str) -> int:
    found: int = scalar(row, f"SELECT count(*) FROM {table}")
    return found
