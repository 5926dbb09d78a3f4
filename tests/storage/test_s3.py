"""What only a bucket can get wrong: the network, wrong keys, an object that changes between two ranges, parts that
nobody sees."""

import io
import re
import socket
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import av
import httpx
import obstore
import pytest
from PIL import Image

from snapapp.storage import Changed, NotStored, ObjectRefused, StorageAway
from snapapp.storage.s3 import S3
from tests.storage.conftest import Bucket

KEY = "snaps/1/2/clip.mp4"
MB = 2**20


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def test_an_object_that_is_replaced_while_it_is_read_is_never_a_mixture(bucket: Bucket, spool: Path) -> None:
    storage = bucket.storage(spool)
    storage.put(KEY, b"a" * 2 * MB)
    with storage.open(KEY) as file:
        assert file.read(10) == b"a" * 10
        storage.put(KEY, b"b" * 2 * MB)
        with pytest.raises(Changed, match="replaced while it was read"):
            file.read()
    storage.delete(KEY)
    with pytest.raises(NotStored), closing(file):
        storage.open(KEY)


def test_an_object_that_is_deleted_while_it_is_read_ends_with_an_error(bucket: Bucket, spool: Path) -> None:
    storage = bucket.storage(spool)
    storage.put(KEY, b"a" * 2 * MB)
    with storage.open(KEY) as file:
        file.read(10)
        storage.delete(KEY)
        with pytest.raises(NotStored):
            file.read()


def test_a_whole_object_is_one_request(bucket: Bucket, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of a backup's files was read in thousands."""
    storage = bucket.storage(spool)
    storage.put(KEY, b"a" * 2 * MB)
    ranges: list[tuple[int, int]] = []
    real = obstore.get

    def counted(*of: Any, options: Any) -> Any:
        ranges.append(options["range"])
        return real(*of, options=options)

    with storage.open(KEY) as file:
        monkeypatch.setattr(obstore, "get", counted)
        assert file.read() == b"a" * 2 * MB
        assert file.read() == b""
    assert ranges == [(0, 2 * MB)]


def test_pyav_reads_a_video_in_place(bucket: Bucket, spool: Path, tmp_path: Path) -> None:
    """S32, and the trap of media.md: PyAV takes nothing but bytes."""
    path = tmp_path / "video.mp4"
    with av.open(str(path), "w") as made:
        stream = made.add_stream("mpeg4", rate=10)
        stream.width, stream.height = 64, 48
        for number in range(30):
            frame = av.VideoFrame.from_image(Image.new("L", (64, 48), number * 8))  # type: ignore[no-untyped-call]
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    storage = bucket.storage(spool)
    storage.put(KEY, path)
    with storage.open(KEY) as file, av.open(file, "r") as video:
        assert len(list(video.decode(video=0))) == 30


def test_a_prefix_keeps_two_houses_in_one_bucket_apart(bucket: Bucket, spool: Path) -> None:
    ours, theirs = bucket.storage(spool, prefix="ours/deep"), bucket.storage(spool, prefix="theirs")
    ours.put(KEY, b"ours")
    theirs.put(KEY, b"theirs")
    assert [stored.key for stored in ours.listed()] == [KEY]
    assert ours.read(KEY, 0, 9) == b"ours"
    assert ours.delete_prefix("snaps/") == 1
    assert theirs.read(KEY, 0, 9) == b"theirs"
    assert [stored.key for stored in bucket.storage(spool).listed()] == [f"theirs/{KEY}"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda storage: storage.stat(KEY),
        lambda storage: storage.exists(KEY),
        lambda storage: storage.open(KEY),
        lambda storage: storage.put(KEY, b"x"),
        lambda storage: storage.put(KEY, io.BytesIO(bytes(9 * MB))),
        lambda storage: storage.delete(KEY),
        lambda storage: storage.delete_prefix("snaps/"),
        lambda storage: list(storage.listed()),
    ],
    ids=["stat", "exists", "open", "put", "put in parts", "delete", "delete a prefix", "list"],
)
def test_a_bucket_that_is_gone_is_away_and_not_one_without_this_object(
    ask: Callable[[S3], object], bucket: Bucket, spool: Path
) -> None:
    """It answered 404 as for a missing object, and each moment was FAILED: its video is no longer there, upload it
    again."""
    bucket.name = "nobody-made-this-one"
    with pytest.raises(StorageAway):
        ask(bucket.storage(spool))


def test_a_bucket_that_goes_while_an_object_is_read_is_away(bucket: Bucket, spool: Path) -> None:
    storage = bucket.storage(spool)
    storage.put(KEY, b"a" * 2 * MB)
    with storage.open(KEY) as file:
        file.read(10)
        storage.delete(KEY)
        httpx.delete(f"{bucket.endpoint}/{bucket.name}").raise_for_status()
        with pytest.raises(StorageAway):
            file.read()


def test_an_endpoint_that_nobody_answers_is_said_so_and_the_upload_leaves_nothing(
    bucket: Bucket, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapapp.storage.s3._RETRIES", 1)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    storage = bucket.storage(spool, endpoint=nobody)
    with pytest.raises(StorageAway) as caught:
        storage.stat(KEY)
    assert KEY in str(caught.value)
    with storage.upload(KEY) as upload:
        upload.write(b"x")
        with pytest.raises(StorageAway):
            upload.finish()
    assert list(spool.iterdir()) == []


class Ended(io.BytesIO):
    """A source during whose third part somebody ends the upload."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bytes(24 * MB))
        self._url = f"{bucket.endpoint}/{bucket.name}"

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() == 16 * MB:
            [upload_id] = re.findall("<UploadId>(.*?)<", httpx.get(f"{self._url}?uploads").text)
            httpx.delete(f"{self._url}/{KEY}", params={"uploadId": upload_id}).raise_for_status()
        return super().read(size)


def test_an_upload_in_parts_that_a_rule_of_the_bucket_ends_is_tried_again(bucket: Bucket, spool: Path) -> None:
    """Its 404 was taken for that of the video, whose moment was FAILED at once."""
    storage = bucket.storage(spool)
    with pytest.raises(StorageAway):
        storage.put(KEY, Ended(bucket))
    assert not storage.exists(KEY)


class Failing(io.BytesIO):
    """A source whose disk breaks in the third part."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 16 * MB:
            raise OSError(5, "Input/output error")
        return super().read(size)


def test_a_source_that_fails_midway_makes_no_object_and_no_parts(bucket: Bucket, spool: Path) -> None:
    storage = bucket.storage(spool)
    httpx.post(f"{bucket.endpoint}/{bucket.name}/begun?uploads").raise_for_status()
    assert bucket.unfinished() == 1, "or we would not see them"
    with pytest.raises((StorageAway, OSError)):
        storage.put(KEY, Failing(bytes(24 * MB)))
    assert not storage.exists(KEY)
    assert bucket.unfinished() == 1


def test_one_object_that_the_bucket_refuses_is_not_a_storage_that_is_away(bucket: Bucket, spool: Path) -> None:
    """A rule of the bucket has moved it into an archive. Its moment waited for ever."""
    archived = {"x-amz-storage-class": "GLACIER"}
    httpx.put(f"{bucket.endpoint}/{bucket.name}/{KEY}", content=b"x", headers=archived).raise_for_status()
    with bucket.storage(spool).open(KEY) as file, pytest.raises(ObjectRefused, match="an archive") as caught:
        file.read()
    assert "InvalidObjectState" in caught.value.reason


class Shut(BaseHTTPRequestHandler):
    """A bucket whose key has expired: it refuses whatever it is asked for."""

    def do_GET(self) -> None:
        self.send_error(403)

    do_HEAD = do_GET  # noqa: N815 - the handler's word for it

    def log_message(self, *_: Any) -> None:
        pass


def test_a_bucket_that_refuses_every_object_is_away(bucket: Bucket, spool: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shut) as shut:
        Thread(target=shut.serve_forever, daemon=True).start()
        with pytest.raises(StorageAway) as caught:
            bucket.storage(spool, endpoint=f"http://127.0.0.1:{shut.server_port}").stat(KEY)
        shut.shutdown()
    assert not isinstance(caught.value, ObjectRefused)
