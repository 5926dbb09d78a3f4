"""Folders for work in progress: the dead's go, the living's stay."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from snapapp.processing import scratch

HOLD = """
import sys; from pathlib import Path; from snapapp.processing import scratch
with scratch.folder(Path(sys.argv[1])) as folder:
    (folder / "half a clip").write_bytes(b"x" * 1000); print(folder, flush=True); sys.stdin.read()
"""


@contextmanager
def holder(under: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    argv = [sys.executable, "-c", HOLD, str(under)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())


def test_a_folder_is_gone_with_all_in_it_when_the_work_is_done(tmp_path: Path) -> None:
    with scratch.folder(tmp_path / "scratch") as folder:
        (folder / "frame").write_bytes(b"x")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_job_and_a_living_one_keeps_its_own(tmp_path: Path) -> None:
    with holder(tmp_path) as (killed, left), holder(tmp_path) as (_, held):
        killed.kill()
        killed.wait()
        with scratch.folder(tmp_path) as ours:
            assert sorted(tmp_path.iterdir()) == sorted([held, ours])
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_nothing_is_fine_and_files_are_left_alone(tmp_path: Path) -> None:
    assert scratch.sweep(tmp_path / "absent") == 0
    (tmp_path / "a file").touch()
    (tmp_path / "a folder").mkdir()
    assert scratch.sweep(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]
