"""Whether a neighbour lives: to be wrong would run its jobs twice."""

import os
import subprocess
import sys
from pathlib import Path
from stat import S_IXOTH

import pytest

from snapapp.jobs.os import processes
from tests.jobs.working import until


def since(pid: int) -> int:
    found = processes.started(pid)
    assert found is not None
    return found


def test_a_process_lives_until_it_ends_even_if_nobody_waits_for_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = since(process.pid)
    assert not processes.is_gone(process.pid, born)
    process.kill()
    until(lambda: processes.is_gone(process.pid, born))  # a zombie by now
    process.communicate()
    assert processes.is_gone(process.pid, born)


def test_a_pid_that_was_used_again_is_another_process() -> None:
    assert processes.is_gone(os.getpid(), since(os.getpid()) - 1)


def test_a_process_that_cannot_be_seen_is_not_taken_for_dead() -> None:
    """A sandbox may hide the neighbours: their leases tell then."""
    ask = f"from snapapp.jobs.os import processes; print(processes.is_gone({os.getpid()}, {since(os.getpid())}))"
    hidden = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --clear-groups"
    command = ["unshare", "--mount", "sh", "-c", f'{hidden} "$0" -c "$1"', sys.executable, ask]
    if os.geteuid() != 0:
        pytest.skip("only root can hide a process")
    if closed := [folder for folder in Path(__file__).parents if not folder.stat().st_mode & S_IXOTH]:
        pytest.skip(f"nobody but its owner may enter {closed[0]}, so the user from whom it is hidden cannot run this")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount" in answer.stderr or "unshare" in answer.stderr:
        pytest.skip(f"cannot hide a process here: {answer.stderr.strip()}")
    assert answer.stdout == "False\n", answer.stderr
