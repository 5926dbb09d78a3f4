"""A decoder that was taken over finds every door shut, and what it says is believed only as far as it must be."""

import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg.conninfo
import pytest

from snapapp.jobs import Failure, doctor
from snapapp.jobs.os.processes import children, started
from snapapp.processing import checks, media_work
from snapapp.processing.decoder import check, sandbox
from snapapp.processing.decoder.client import DecoderDied, DecoderFailed, Decoders, OutOfMemory
from snapapp.processing.decoder.protocol import Garbled
from snapapp.processing.decoder.sandbox import LARGEST_FILE
from snapapp.settings.table import Settings
from snapapp.storage import NoRoom
from tests.factory import Db
from tests.jobs.executors.test_executors import put
from tests.jobs.executors.test_late_report import box_of
from tests.jobs.working import until, until_status, working
from tests.processing import hostile, hostile_kinds

SECRET = "only-the-child-knows-" + "this-key-of-the-bucket"  # in two parts, so that no file of code holds it
# What some machines forbid anybody: to trace others (Yama), rings and keys (containers).
ELSEWHERE_SHUT_TOO = {"trace", "memory", "vm", "ring", "keys"}

pytestmark = pytest.mark.skipif("seccomp" in sandbox.missing(), reason="this system has no seccomp")


@pytest.fixture
def targets(url: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Everything that must not be reached, all of it there, and open to the user that the test runs as."""
    files = {name: tmp_path / name for name in ("env_file", "others_file", "own_file")}
    for file in files.values():
        file.write_text("secret")
    database = psycopg.conninfo.conninfo_to_dict(url)
    host, port = str(database.get("host") or ""), int(database.get("port") or 5432)
    neighbour = subprocess.Popen(["sleep", "600"])
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as elsewhere,
        closing(socket.socket(socket.AF_UNIX)) as unix,
        closing(socket.create_server(("127.0.0.1", 0))) as tcp,
    ):
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        yield {
            **{name: str(file) for name, file in files.items()},
            # the database's own where the tests speak with it in that way
            "database_socket": f"{host}/.s.PGSQL.{port}" if host.startswith("/") else str(tmp_path / "socket"),
            "database_port": tcp.getsockname()[1] if host.startswith("/") else port,
            "other_port": elsewhere.getsockname()[1],
            "elsewhere": str(tmp_path / "elsewhere"),
            "worker": os.getpid(),
            "neighbour": neighbour.pid,
            "scratch": str(tmp_path / "scratch"),
        }
    neighbour.kill()
    neighbour.wait()


def test_a_decoder_that_was_taken_over_finds_every_door_shut(url: str, db: Db, targets: dict[str, Any]) -> None:
    with working(url, hostile_kinds.registry, child_environment={"SNAPAPP_S3_SECRET_ACCESS_KEY": SECRET}):
        found = until_status(db, put(db, "hostile.decoder", payload=targets), "COMPLETED").result
        assert {name: said for name, said in found["tried"].items() if not said.startswith("shut: ")} == {}
        assert len(found["tried"]) == len(hostile._TRIES)
        assert not Path(targets["elsewhere"]).exists()
        assert holds(found["child"], SECRET), "or the next line says nothing"
        assert not holds(found["server"], SECRET)


def test_the_doors_are_open_where_there_are_no_walls(url: str, db: Db, targets: dict[str, Any]) -> None:
    """Or the test above would say nothing."""
    with working(url, hostile_kinds.registry):
        tried = until_status(db, put(db, "hostile.child", payload=targets), "COMPLETED").result
    assert {name for name, said in tried.items() if not said.startswith("open: ")} <= ELSEWHERE_SHUT_TOO


@pytest.mark.parametrize(
    ("missing", "finding", "said"),
    [
        ((), "DECODERS", None),
        (("Landlock",), "DECODERS_ONE_WALL", "by seccomp alone"),
        (("seccomp",), "DECODERS_OPEN", "no seccomp$"),
        (("seccomp", "Landlock"), "DECODERS_OPEN", "no seccomp and no Landlock"),
    ],
)
def test_what_does_not_shut_decoders_in_is_said_by_the_doctor_and_before_a_deploy(
    url: str, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], finding: str, said: str | None
) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: missing)
    settings = Settings()
    facts = doctor.Facts(
        jobs=settings.jobs(url), connections=0, disk_free_min_mb=0, schema={}, checks=checks.of(settings)
    )
    assert [each.id for each in doctor.examine(url, facts, only=["decoders"])] == [finding]
    assert (check.in_one_line() is None) if said is None else re.search(said, check.in_one_line() or "")


def test_a_kernel_without_landlock_is_known_by_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_landlock_abi", lambda: -1)
    assert sandbox.missing() == ("Landlock",)
    walls_less = behind_walls({"env_file": "/dev/null"})
    assert walls_less["secret"].startswith("shut: ")


def holds(pid: int, secret: str) -> bool:
    """Whether it stands anywhere in the memory that a process can write to."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            (begins, ends), rights = (int(end, 16) for end in line.split()[0].split("-")), line.split()[1]
            if rights.startswith("rw"):
                memory.seek(begins)
                if secret.encode() in memory.read(ends - begins):
                    return True
    return False


@pytest.mark.parametrize("wall", ["_filter", "_forbid_everything"])
def test_either_wall_alone_keeps_files_away(
    targets: dict[str, Any], monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    if wall == "_filter" and "Landlock" in sandbox.missing():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setattr(sandbox, wall, lambda _: None)
    tried = behind_walls(targets)
    doors = ["secret", "environment", "memory", "run", "others_file", "write_elsewhere"]
    if wall == "_forbid_everything":
        doors += ["database_by_tcp", "signal"]  # newer kernels' Landlock shuts them as well
    assert {name: tried[name] for name in doors if not tried[name].startswith("shut: ")} == {}


def behind_walls(targets: dict[str, Any]) -> dict[str, str]:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.closerange(3, writing)  # of files it may have 64, and this process may have more of its own
            os.closerange(writing + 1, 1 << 16)
            sandbox.enter()
            os.write(writing, json.dumps(hostile.attack(targets)).encode())
        except BaseException:  # noqa: BLE001 - it ends here
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        found: dict[str, str] = json.load(told)
    os.waitpid(child, 0)
    return found


@pytest.fixture(scope="module")
def decoders() -> Iterator[Decoders]:
    """One fork server for all: each test has decoders of its own, and whoever needs a new server ends this one."""
    made = Decoders(hostile.__name__)
    yield made
    made.stop()


# --- what a decoder says ----------------------------------------------------------------------------------------


def run(decoders: Decoders, scratch: Path, do: str, order: dict[str, Any], video: Any = None) -> Any:
    told: list[str] = []
    with decoders.run(
        f"{hostile.__name__}:{do}", order, video or io.BytesIO(b"video"), scratch, lambda _, step: told.append(step)
    ) as made:
        return made.told, told, made.names


@pytest.mark.parametrize(
    "files",
    [
        *({"../poster.jpg": [0, 0]}, {"poster.jpg": [0, 1]}, {"poster.jpg": [-1, 1]}, {"poster.jpg": [0, -1]}),
        *({"": None}, {f"frame_{number:05}.jpg": [0, 0] for number in range(1001)}),
    ],
)
def test_files_that_cannot_be_are_refused(decoders: Decoders, tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(Garbled, match="file"):
        run(decoders, tmp_path, "names", {"files": files, "made": None})


def test_want_of_room_is_believed_only_where_the_disk_is_nearly_full(
    decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job without room waits without an attempt, and a video that has taken its decoder over could have it do so for
    ever."""
    for free, error in ((1 << 30, DecoderFailed), (1 << 20, NoRoom)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        with pytest.raises(error, match="No space left"):
            run(decoders, tmp_path, "fills", {})


EVIDENCE: dict[str, Any] = {
    "clip": {"file_name": "snapshot.mp4"},
    "frames": [{"file_name": "frame_00001.jpg", "clean_file_name": None}],
    "extras": {"poster": "poster.jpg", "thumbnail": "thumbnail.jpg", "artefacts": [{"file_name": "poster.jpg"}]},
}
FILES = {"snapshot.mp4": None, **{name: [0, 0] for name in ("frame_00001.jpg", "poster.jpg", "thumbnail.jpg")}}


@pytest.mark.parametrize("left_out", FILES)
def test_evidence_names_files_of_its_own_only(decoders: Decoders, tmp_path: Path, left_out: str) -> None:
    def evidence(files: dict[str, Any]) -> dict[str, Any]:
        order = {"files": files, "made": EVIDENCE}
        with decoders.run(f"{hostile.__name__}:names", order, io.BytesIO(b"video"), tmp_path, print) as made:
            return media_work.evidence_of(made, "snaps/1/")

    assert evidence(FILES) == EVIDENCE | {"media_prefix": "snaps/1/"}
    with pytest.raises(Garbled, match=left_out):
        evidence({name: place for name, place in FILES.items() if name != left_out})


@pytest.mark.parametrize(
    "says",
    [
        *('{"read": [-1, 1]}', '{"read": [0, 1048577]}', '{"read": [0, -1]}', "[]", "{", "[" * 100_000),
        '{"made": null, "files": {}, "media_prefix": "x"} ' + " " * 4_194_304,
    ],
)
def test_what_is_no_message_of_ours_ends_the_decoder(decoders: Decoders, tmp_path: Path, says: str) -> None:
    with pytest.raises(Garbled):
        run(decoders, tmp_path, "asks", {"says": says})
    assert run(decoders, tmp_path, "names", {"files": {}, "made": 1})[0] == 1


def test_a_video_is_read_for_a_decoder_that_cannot_have_it(decoders: Decoders, tmp_path: Path) -> None:
    assert run(decoders, tmp_path, "reads", {}, io.BytesIO(b"0123456789"))[0] == ["012", "789", 10]
    (tmp_path / "video").write_bytes(b"0123456789")
    with (tmp_path / "video").open("rb") as file:
        assert run(decoders, tmp_path, "reads", {}, file)[0] == ["012", "789", 10]


def test_what_the_source_raises_comes_through_as_it_is_and_ends_the_decoder(decoders: Decoders, tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("the source is gone")

    with pytest.raises(ConnectionResetError, match="the source is gone"):
        run(decoders, tmp_path, "reads", {}, Broken(b"0123456789"))
    assert decoders.pid
    assert children(decoders.pid) == []


def test_a_decoder_that_answers_and_stays_is_ended(decoders: Decoders, tmp_path: Path) -> None:
    _, [pid], _ = run(decoders, tmp_path, "stays", {})
    assert started(int(pid)) is None


def test_a_decoder_that_is_refused_memory_says_so(
    decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512 * 1024 * 1024, resource.RLIM_INFINITY))
    with pytest.raises(OutOfMemory) as raised:
        run(decoders, tmp_path, "hungry", {})
    assert Failure.of(raised.value).lacked_memory


@pytest.mark.parametrize(("do", "why"), [("vast", "a message of 5"), ("no_number", "not JSON compliant")])
def test_an_answer_that_cannot_be_sent_says_why(decoders: Decoders, tmp_path: Path, do: str, why: str) -> None:
    with pytest.raises(DecoderDied, match=why):
        run(decoders, tmp_path, do, {})


def test_a_wall_that_cannot_be_built_says_which(
    decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that no kernel takes stands for what may go wrong behind the order and before the work."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: ("everything", resource.RLIM_INFINITY))
    with pytest.raises(DecoderDied, match="enter"):
        run(decoders, tmp_path, "names", {"files": {}, "made": 1})


def test_a_decoder_cannot_fill_the_disk(decoders: Decoders, tmp_path: Path) -> None:
    assert run(decoders, tmp_path, "fills_the_disk", {"from": LARGEST_FILE - 1})[2] == ["preview.mp4"]
    with pytest.raises(DecoderFailed, match="File too large"):
        run(decoders, tmp_path, "fills_the_disk", {"from": LARGEST_FILE})


def test_a_picture_that_would_not_fit_into_memory_is_refused(decoders: Decoders, tmp_path: Path) -> None:
    assert run(decoders, tmp_path, "holes", {"size": 64 << 20})[2] == ["poster.jpg"]
    with pytest.raises(Garbled, match="a picture of"):
        run(decoders, tmp_path, "holes", {"size": 1 + (64 << 20)})


def test_a_crash_says_where_and_costs_the_child_nothing(url: str, db: Db, tmp_path: Path) -> None:
    with working(url, hostile_kinds.registry):
        before = until_status(db, put(db, "hostile.pids"), "COMPLETED").result
        dead = until_status(db, put(db, "hostile.crash", payload={"scratch": str(tmp_path)}), "FAILED")
        after = until_status(db, put(db, "hostile.pids"), "COMPLETED").result
    assert "the decoder was killed by SIGSEGV" in dead.last_error
    assert "in dies" in dead.last_error
    assert before == after, "the child keeps its fork server from one job to the next"


def test_where_a_decoder_hangs_is_in_the_log(url: str, db: Db, tmp_path: Path) -> None:
    with working(url, hostile_kinds.registry):
        until_status(db, put(db, "hostile.pids"), "COMPLETED")  # so that all that has to start has started
        job_id = put(db, "hostile.hang", payload={"scratch": str(tmp_path)})
        until_status(db, job_id, "FAILED")
    box = box_of(db, job_id)
    assert "decoder/client.py" in box
    assert re.search(r'hostile.py", line \d+ in hangs', box)


def test_a_fork_server_that_was_killed_is_started_again(decoders: Decoders, tmp_path: Path) -> None:
    decoders.start()
    first = decoders.pid
    assert first
    os.kill(first, signal.SIGKILL)
    until(lambda: started(first) is None)
    assert run(decoders, tmp_path, "names", {"files": {}, "made": 1})[0] == 1
    assert decoders.pid != first
    with pytest.raises(DecoderDied, match="SIGKILL, which was not sent by the worker: perhaps memory ran out"):
        run(decoders, tmp_path, "reads_for_ever", {}, Killing(decoders))
    assert run(decoders, tmp_path, "names", {"files": {}, "made": 1})[0] == 1


class Killing(io.BytesIO):
    """Whoever reads it loses the fork server."""

    def __init__(self, decoders: Decoders) -> None:
        super().__init__(b"0123456789")
        self._decoders = decoders

    def read(self, size: int | None = -1, /) -> bytes:
        assert self._decoders.pid
        os.kill(self._decoders.pid, signal.SIGKILL)
        return super().read(size)
