"""Media out of a bucket: the application, its settings and S3 put together."""

import http.client
import os
import socket
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from snapapp.settings.table import StorageKind
from tests.api.conftest import served
from tests.api.http.test_media import get
from tests.api.internal.test_live import serving
from tests.storage.conftest import Bucket

PREFIX = "snaps/0197a0f0-0000-7000-8000-000000000001/3/"
MB = 2**20


def in_a_bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "storage": StorageKind.S3,
        "s3_endpoint": bucket.endpoint,
        "s3_bucket": bucket.name,
        "s3_access_key_id": "somebody",
        "s3_secret_access_key": "who has a secret",
        "s3_prefix": "house",
    }


def test_a_link_gives_what_is_in_the_bucket(url: str, tmp_path: Path, bucket: Bucket) -> None:
    """S32."""
    content = os.urandom(2 * MB + 5)
    with served(url, tmp_path, worker_enabled=False, **in_a_bucket(bucket)) as client:
        monolith = client.app.state.monolith  # type: ignore[attr-defined]  # it is the FastAPI we made
        monolith.storage.put(f"{PREFIX}clip.mp4", content)
        link = monolith.links.base(PREFIX, datetime.now(UTC))
        whole = client.get(f"{link}clip.mp4")
        assert (whole.status_code, whole.content) == (200, content)
        part = client.get(
            f"{link}clip.mp4", headers={"Range": "bytes=500000-1500000", "If-Range": whole.headers["etag"]}
        )
        assert (part.status_code, part.content) == (206, content[500_000:1_500_001])
        assert client.get(f"{link}clip.mp4", headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
        assert client.get(f"{link}other.mp4").status_code == 404
    bare = bucket.storage(tmp_path / "spool")
    assert [stored.key for stored in bare.listed()] == [f"house/{PREFIX}clip.mp4"]


def test_a_bucket_that_is_away_is_503_and_says_no_more(
    url: str, tmp_path: Path, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says more, but not the link: whoever reads it could use it."""
    away = in_a_bucket(bucket) | {"s3_endpoint": "http://127.0.0.1:9"}
    with served(url, tmp_path, worker_enabled=False, **away) as client:
        link = client.app.state.monolith.links.base(PREFIX, datetime.now(UTC))  # type: ignore[attr-defined]
        given = client.get(f"{link}clip.mp4")
    assert (given.status_code, given.headers["retry-after"]) == (503, "5")
    assert given.json()["message"] == "The storage is away, try again"
    said = " ".join(record.getMessage() for record in caplog.records if record.name == "snapapp.api.http.errors")
    assert f"GET /media/***/clip.mp4: The storage cannot be used for {PREFIX}clip.mp4" in said
    assert link not in said


def test_a_bucket_that_hangs_keeps_no_other_route(url: str, tmp_path: Path, bucket: Bucket) -> None:
    """More ask for media than there are threads for routes, and nobody is answered."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200))
        hanging = in_a_bucket(bucket) | {"s3_endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        running = stack.enter_context(serving(url, data_dir=tmp_path, **hanging))
        link = running.app.state.monolith.links.base(PREFIX, datetime.now(UTC))
        for _ in range(60):
            asking = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            asking.sendall(f"GET {link}clip.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        stack.enter_context(silent.accept()[0])  # somebody hangs now
        given = httpx.get(f"http://127.0.0.1:{running.port}/internal/jobs", timeout=5)
        assert given.status_code == 200
        silent.close()


@pytest.mark.parametrize("replaced", [True, False])
def test_an_object_that_goes_while_it_is_sent_is_cut_and_never_mixed(
    url: str, tmp_path: Path, bucket: Bucket, replaced: bool
) -> None:
    size = 24 * MB  # more than the sockets between us hold
    with serving(url, data_dir=tmp_path, **in_a_bucket(bucket)) as running:
        monolith = running.app.state.monolith
        monolith.storage.put(f"{PREFIX}clip.mp4", b"a" * size)
        with get(running.port, monolith.links.base(PREFIX, datetime.now(UTC)) + "clip.mp4") as given:
            assert given.read(5) == b"aaaaa"
            if replaced:
                monolith.storage.put(f"{PREFIX}clip.mp4", b"b" * size)
            else:
                monolith.storage.delete(f"{PREFIX}clip.mp4")
            with pytest.raises(http.client.IncompleteRead) as cut:
                given.read()
        assert {*cut.value.partial} == {ord("a")}
