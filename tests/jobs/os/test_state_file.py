"""What a worker leaves behind where its death does not erase it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapapp.jobs.os import state_file
from snapapp.jobs.os.state_file import MOST_SLOTS, Reason, StateFile
from tests import small_disk


@pytest.fixture
def state() -> Iterator[StateFile]:
    its = StateFile.make()
    its.use(3)
    yield its
    its.forget()


def test_what_a_killed_process_was_running_is_read_from_its_file(state: StateFile) -> None:
    marks = "a, b, c = map(state.marker, range(3)); a(11, 1.5); b(12, 7.25); c(13, 9.0); c(0, 0.0); state.note(40, 3.5)"
    code = f"from snapapp.jobs.os.state_file import StateFile; state = StateFile.open({state.path!r}); {marks}"
    died = subprocess.run([sys.executable, "-c", f"{code}; import os; os.kill(os.getpid(), 9)"], check=False)
    assert died.returncode == -9
    assert state_file.running(state.path) == [11, 12]
    assert (state.busy_until, state.done, state.seen_at) == (7.25, 40, 3.5)


def test_a_worker_and_its_supervisor_see_what_the_other_says(state: StateFile) -> None:
    worker = StateFile.open(state.path)
    state.reason = Reason.DRAINED
    worker.ready()
    worker.leave()
    assert (worker.reason, state.is_ready, state.is_leaving) == (Reason.DRAINED, True, True)
    assert (state.busy_until, state.running) == (0.0, [])


def test_a_file_that_is_gone_or_not_ours_tells_nothing(tmp_path: Path, state: StateFile) -> None:
    """Its name came from a table, into which others may write."""
    other = tmp_path / "notes"
    other.write_text("kept")
    link = tmp_path / "snapapp-state-link"
    link.symlink_to(other)
    foreign = tmp_path / "snapapp-state-foreign"
    foreign.touch()
    strange = [None, "", str(other), str(link), str(tmp_path / "snapapp-state-none")]
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
        strange.append(str(foreign))
    for path in strange:
        assert state_file.running(path) is None
        state_file.forget(path)
    assert (other.read_text(), link.is_symlink(), foreign.exists()) == ("kept", True, True)
    state_file.forget(state.path)
    assert state_file.running(state.path) is None


def test_more_slots_than_the_file_has_are_refused(state: StateFile) -> None:
    with pytest.raises(ValueError, match="32000 jobs at once, not 32001"):
        state.use(MOST_SLOTS + 1)


_ON_A_FULL_DISK = """
import sys, tempfile
from pathlib import Path
from snapapp.jobs.os.state_file import StateFile
tempfile.tempdir = sys.argv[1]
before = StateFile.make()
with Path(tempfile.tempdir, "full").open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(512))
    except OSError:
        pass
for start in (StateFile.make, lambda: before.use(300)):
    try:
        start()
    except OSError as error:
        print(error.strerror, Path(error.filename).parent == Path(tempfile.tempdir))
before.use(200)
before.ready()
print(sorted(path.name for path in Path(tempfile.tempdir).iterdir()) == ["full", Path(before.path).name])
"""


def test_a_full_disk_is_an_error_and_kills_nobody(tmp_path: Path) -> None:
    """Each write to the mapped file was a SIGBUS: the whole application died without a word, and a supervisor too."""
    result = small_disk.run(_ON_A_FULL_DISK, tmp_path, "64k")
    assert (result.returncode, result.stdout.splitlines()) == (0, ["No space left on device True"] * 2 + ["True"])


def test_what_killed_processes_left_behind_goes_after_a_day_and_what_is_mapped_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held, young = StateFile.make(), tmp_path / "snapapp-state-young"
    dead, others = tmp_path / "snapapp-state-dead", tmp_path / "theirs"
    for path in (young, dead, others):
        path.touch()
    for path in (Path(held.path), dead, others):
        os.utime(path, (0, 0))
    last = StateFile.make()
    assert not dead.exists()
    assert all(path.exists() for path in (Path(held.path), young, others, Path(last.path)))
