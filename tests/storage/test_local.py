"""What only a folder can get wrong: links, foreign files, folders in the way, a disk that is full."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snapapp.storage import InvalidKey, Local, NotStored, Room, StorageAway

KEY = "snaps/1/2/frame.jpg"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "media"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"not yours")
    return folder


def test_a_name_is_on_disk_before_it_is_said_to_be_there(
    local: Local, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FE8, T16: after a power cut a file whose folder was not synced has no name."""
    said: list[str] = []
    replace, fsync = os.replace, os.fsync

    def note_replace(*given: Any, **named: Any) -> None:
        replace(*given, **named)
        said.append("named")

    def note_fsync(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            said.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(os, "fsync", note_fsync)
    local.put("a/b/c", b"x")
    assert said[-2:] == ["named", str(root / "a" / "b")]
    assert {str(root), str(root / "a")} <= {*said}, "nor a folder"


def test_no_link_leads_out(local: Local, root: Path, outside: Path) -> None:
    """4.1 path traversal: neither a file nor a folder nor one in the middle."""
    local.put("a/b/c", b"x")
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "a" / "up").symlink_to(outside)
    for key in ("file", "folder/secret", "a/up/secret"):
        assert not local.exists(key)
        with pytest.raises(NotStored):
            local.open(key)
        local.delete(key)
    for key in ("folder/new", "a/up/new", "folder/deep/new"):
        with pytest.raises(InvalidKey):
            local.put(key, b"x")
    assert [stored.key for stored in local.listed()] == ["a/b/c"]
    assert local.delete_prefix("a/") == 1
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"not yours"


def test_a_link_in_the_place_of_an_object_is_replaced_and_not_written_through(
    local: Local, root: Path, outside: Path
) -> None:
    root.mkdir()
    (root / "file").symlink_to(outside / "secret")
    local.put("file", b"ours")
    assert local.read("file", 0, 9) == b"ours"
    assert (outside / "secret").read_bytes() == b"not yours"


def test_the_folder_itself_may_be_a_link_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "disk2").mkdir()
    (tmp_path / "media").symlink_to(tmp_path / "disk2")
    local = Local(tmp_path / "media", Room(tmp_path, 0))
    local.put(KEY, b"x")
    assert (tmp_path / "disk2" / KEY).read_bytes() == b"x"


def test_what_others_left_there_is_no_object_and_hinders_nobody(local: Local, root: Path) -> None:
    """A pipe would keep whoever opens it waiting for ever."""
    local.put("a/ok", b"x")
    os.mkfifo(root / "a" / "pipe")
    (root / "a" / "name with blanks").write_bytes(b"x")
    (root / ".hidden").write_bytes(b"x")
    with pytest.raises(NotStored):
        local.open("a/pipe")
    assert [stored.key for stored in local.listed()] == ["a/ok"]


def test_a_folder_in_the_place_of_a_file_is_said_so(local: Local, root: Path) -> None:
    local.put("a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(InvalidKey, match="something else has that name"):
            local.put(key, b"y")
    assert local.read("a/b", 0, 9) == b"x"
    assert list((root / ".incoming").iterdir()) == []


def test_nobody_else_may_read_what_is_stored(local: Local, root: Path) -> None:
    local.put(KEY, b"x")
    for path in (root / KEY, *(root / KEY).parents[:3], root / ".incoming"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_an_object_is_on_disk_before_it_has_its_name_and_its_name_before_put_returns(
    local: Local, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FE4: what a power cut would leave depends on the order; so do folders that were new."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(fd: int) -> None:
        place = Path(f"/proc/self/fd/{fd}").readlink()
        done.append("file" if place.is_file() else str(place.relative_to(root)))
        fsync(fd)

    def watched_replace(source: Path, name: str, *, dst_dir_fd: int) -> None:
        done.append("named")
        replace(source, name, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr("os.fsync", watched_fsync)
    monkeypatch.setattr("os.replace", watched_replace)
    local.put("a/b/c", b"x")
    assert done == ["file", ".", "a", "named", "a/b"]


def test_empty_folders_go_with_their_last_object(local: Local, root: Path) -> None:
    local.put("snaps/1/1/a", b"x")
    local.put("snaps/1/2/a", b"x")
    local.delete_prefix("snaps/1/1/")
    assert sorted(path.name for path in (root / "snaps" / "1").iterdir()) == ["2"]
    local.delete("snaps/1/2/a")
    assert not (root / "snaps").exists()


def test_a_deleted_object_is_read_to_its_end_by_who_has_it_open(local: Local) -> None:
    content = os.urandom(1_000_000)
    local.put(KEY, content)
    with local.open(KEY) as file:
        assert file.read(10) == content[:10]
        local.delete(KEY)
        assert file.read() == content[10:]


def test_a_storage_that_does_not_answer_is_not_an_empty_one(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the sweeper would take every row for one that has lost its files."""
    local.put(KEY, b"x")

    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.open", broken)
    for ask in (lambda: local.stat(KEY), lambda: local.exists(KEY), lambda: list(local.listed())):
        with pytest.raises(StorageAway, match="Input/output error"):
            ask()


FILL = """
import resource, sys
from pathlib import Path
from snapapp.storage import Local, NoRoom, Room
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
root = Path(sys.argv[1])
local = Local(root / "media", Room(root, 0))
try:
    local.put("big", b"x" * 3_000_000)
except NoRoom as error:
    print("no room:", error)
print(sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))
"""


def test_a_write_that_the_system_refuses_for_want_of_room_leaves_nothing(tmp_path: Path) -> None:
    """T15, in a process of its own, whose files may not grow."""
    ran = subprocess.run([sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, check=True)
    said, files = ran.stdout.splitlines()
    assert said.startswith("no room: The disk of SNAPAPP_DATA_DIR is full")
    assert files == "[]"


GROW = """
import resource, sys
from pathlib import Path
from snapapp.storage import Local, Room
root = Path(sys.argv[1])
local = Local(root / "media", Room(root, 0))
block = bytes(1_048_576)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with local.upload("big") as upload:
    for _ in range(300):
        upload.write(block)
    upload.finish()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_an_upload(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", GROW, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 20_000  # KiB, of 300 MiB


KILLED = """
import os, signal, sys
from pathlib import Path
from snapapp.storage import Local, Room
root = Path(sys.argv[1])
local = Local(root / "media", Room(root, 0))
upload = local.upload("a/b")
upload.write(b"x" * 100_000)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_upload_whose_process_is_killed_is_never_an_object(tmp_path: Path, local: Local) -> None:
    """FE4, FE8."""
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ran.returncode == -9
    assert list(local.listed()) == []
    assert len(list((tmp_path / "media" / ".incoming").iterdir())) == 1
