"""Both storages: a folder, and a bucket behind a real HTTP server that speaks S3."""

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from snapapp.storage import Local, Room, Storage
from snapapp.storage.s3 import S3
from tests.jobs.working import until

ROOMY = 0  # MB that must stay free
PAGE = 25  # objects that the bucket lists at once, where S3 lists a thousand


class Bucket:
    """One of the test's own; what snapapp has no use for is asked over HTTP."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.name = f"b{uuid.uuid4().hex}"
        httpx.put(f"{endpoint}/{self.name}").raise_for_status()

    def unfinished(self) -> int:
        """Multipart uploads that were begun and neither completed nor aborted."""
        answer = httpx.get(f"{self.endpoint}/{self.name}?uploads").raise_for_status()
        return answer.text.count("<UploadId>")

    def storage(self, spool: Path, *, prefix: str = "", endpoint: str = "", floor_mb: int = ROOMY) -> S3:
        return S3(
            bucket=self.name,
            endpoint=endpoint or self.endpoint,
            region="us-east-1",
            access_key_id="somebody",
            secret_access_key="who has a secret",
            prefix=prefix,
            spool=spool,
            room=Room(spool.parent, floor_mb),
        )


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as file:
        argv = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        environment = os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)}
        process = subprocess.Popen(argv, stdout=file, stderr=file, env=environment)
    try:
        until(lambda: "Running on" in log.read_text() or process.poll() is not None, within=60)
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())
        assert found, log.read_text()
        yield found[1]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    return Bucket(s3_endpoint)


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path / "media", Room(tmp_path, ROOMY))


@pytest.fixture
def incoming(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where uploads are until they are whole."""
    kind = request.getfixturevalue("kind")
    return tmp_path / ("media/.incoming" if kind == "local" else "spool")


@pytest.fixture(params=["local", "s3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[int], Storage]:
    """A storage whose disk must keep so many MB free."""
    if kind == "local":
        return lambda floor_mb: Local(tmp_path / "media", Room(tmp_path, floor_mb))
    bucket: Bucket = request.getfixturevalue("bucket")
    return lambda floor_mb: bucket.storage(tmp_path / "spool", floor_mb=floor_mb)


@pytest.fixture
def storage(make: Callable[[int], Storage]) -> Storage:
    return make(ROOMY)
