"""The executor `command`: any program, one process an attempt, JSON in and JSON out."""

import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import pytest

from snapapp.jobs.executors import command
from snapapp.jobs.executors.command import Command
from snapapp.jobs.os.processes import started
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle
from tests.factory import Db, row
from tests.jobs.executors.test_children import said_pids
from tests.jobs.executors.test_executors import put
from tests.jobs.working import until, until_status, working
from tests.labs.executors import kinds
from tests.labs.executors.kinds import shell


def test_what_a_program_says_while_nobody_looks_and_then_ends_is_read(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that finds nothing, and right after it the program answers and is gone."""

    class TooSoon(selectors.PollSelector):
        has_looked = False

        def select(self, timeout: float | None = None) -> list[Any]:
            if TooSoon.has_looked:
                return super().select(timeout)
            TooSoon.has_looked = True
            while len(super().select(1)) < len(self.get_map()):  # until all that there is to see can be seen
                pass
            return []

    ours = SimpleNamespace(PollSelector=TooSoon, EVENT_READ=selectors.EVENT_READ, EVENT_WRITE=selectors.EVENT_WRITE)
    monkeypatch.setattr(command, "selectors", ours)
    with working(url, kinds.registry):
        assert until_status(db, put(db, "command.good", max_attempts=1), "COMPLETED").result == "done"


def test_a_program_reads_its_job_and_its_answer_is_the_result(url: str, db: Db) -> None:
    """R20, R21, R26."""
    payload = {"camera": "Ñ 7", "frames": "x" * 600_000}  # more than a pipe holds, in and out
    with working(url, kinds.registry):
        job_id = put(db, "command.echo", payload=payload, request_id="r-1", tenant="ana")
        done = until_status(db, job_id, "COMPLETED")
    assert done.result["payload"] == payload
    about = done.result["job"]
    assert (about["id"], about["kind"], about["attempt"], about["tenant"]) == (job_id, "command.echo", 1, "ana")
    assert (about["requestId"], about["leaseSeq"]) == ("r-1", done.lease_seq - 1)


def test_a_program_gets_no_secrets_and_a_folder_of_its_own(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_INTERNAL_TOKEN", "a secret that is long enough")
    with working(url, kinds.registry):
        names = until_status(db, put(db, "command.environment"), "COMPLETED").result.split()
        folder, files = until_status(db, put(db, "command.folder"), "COMPLETED").result.split()
        until(lambda: not Path(folder).exists())
    assert {"PATH", "HOME", "TMPDIR"} <= set(names)
    assert set(names) - {name for name in names if name.startswith("LC_")} <= {
        *("PATH", "HOME", "TMPDIR", "PWD", "LANG", "TZ", "SHLVL", "_", "OLDPWD"),
    }
    assert files == "1"


def test_what_a_program_writes_to_its_standard_error_is_the_jobs_log_up_to_a_mark(url: str, db: Db) -> None:
    """R21."""
    with working(url, kinds.registry):
        done = until_status(db, put(db, "command.lines"), "COMPLETED")
    lines = db.execute("SELECT level, message FROM job_log WHERE job_id = %s ORDER BY id", [done.id]).fetchall()
    assert lines[:2] == [("INFO", "1"), ("INFO", "2")]
    assert len(lines) == 1000
    assert lines[-1] == ("WARNING", "too many log lines: the rest of this attempt's are dropped")


def test_the_programs_own_error_and_traceback_are_kept(url: str, db: Db) -> None:
    """R22."""
    with working(url, kinds.registry):
        dead = until_status(db, put(db, "command.refuses", max_attempts=2), "FAILED")
    assert dead.last_error == "NoVideo: no stream"
    assert [entry["trace"] for entry in dead.errors] == ["line 7"] * 2


def test_a_cancel_kills_the_program_and_what_it_has_started(url: str, db: Db) -> None:
    """R37."""
    with working(url, kinds.registry, beat_every=timedelta(minutes=2), lease_for=timedelta(minutes=9)) as (worker, _):
        job_id = put(db, "command.brooding")
        pids = said_pids(db, job_id)
        until(lambda: worker.vitals().listens)
        lifecycle.cancel(db, job_id)
        until(lambda: not any(map(started, pids)))
        until_status(db, job_id, "CANCELLED")


def test_a_stop_kills_the_program_and_hands_its_job_back(url: str, db: Db) -> None:
    """R30, D17."""
    with working(url, kinds.registry) as (worker, _):
        job_id = put(db, "command.brooding")
        pids = said_pids(db, job_id)
        worker.stop(grace=timedelta(milliseconds=300))
        back = row(db, job_id)
        assert not any(map(started, pids))
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)


def test_what_a_program_leaves_running_dies_with_it(url: str, db: Db) -> None:
    with working(url, kinds.registry):
        done = until_status(db, put(db, "command.litter"), "COMPLETED")
        [left_behind] = said_pids(db, done.id)
        until(lambda: started(left_behind) is None)


def an_echo(registry: Registry, command: list[str] | None = None) -> None:
    if command:
        registry.processor("tool", executor="command", command=command)(lambda job: None)
    else:
        registry.processor("tool", executor="command")(lambda job: job.payload["argv"])


@pytest.mark.parametrize(
    ("declared", "computed", "allowed", "outcome"),
    [
        (shell(kinds.ANSWER), None, (), None),
        (shell(kinds.ANSWER), None, ("ls",), "CommandNotAllowed: the program '/bin/sh' is not on"),
        (shell(kinds.ANSWER), None, ("/bin/sh",), None),
        (None, shell(kinds.ANSWER), (), "CommandNotAllowed: the program '/bin/sh' is not on"),
        (None, shell(kinds.ANSWER), ("/bin/sh",), None),
        (None, ["sh", "-c", kinds.ANSWER], ("sh",), None),
        (None, ["/bin/bash", "-c", kinds.ANSWER], ("sh",), "CommandNotAllowed: the program '/bin/bash' is not on"),
        (None, ["./sh", "-c", kinds.ANSWER], ("sh",), "CommandNotAllowed: the program './sh' is not on"),
        (None, ["no-such-program"], ("no-such-program",), "CommandMissing: there is no program 'no-such-program'"),
        (None, ["no-such-program"], ("nor-this-one",), "CommandNotAllowed: the program 'no-such-program' is not on"),
        (None, [], ("sh",), "CommandNotAllowed: tool job"),
        (None, [""], ("sh",), "CommandNotAllowed: tool job"),
        (None, [*shell(kinds.ANSWER), ""], ("/bin/sh",), None),
    ],
)
def test_only_allowed_programs_run(
    url: str, db: Db, declared: list[str] | None, computed: Any, allowed: tuple[str, ...], outcome: str | None
) -> None:
    """R23: without a list, what the code names and nothing that is computed."""
    registry = Registry()
    an_echo(registry, declared)
    with working(url, registry, command_allow=allowed):
        job_id = put(db, "tool", payload={"argv": computed}, max_attempts=1)
        ended = until_status(db, job_id, "COMPLETED", "FAILED")
    assert ended.status == ("FAILED" if outcome else "COMPLETED")
    assert (outcome or "") in (ended.last_error or "")


def test_a_program_that_is_not_allowed_is_not_tried_again(url: str, db: Db) -> None:
    with working(url, kinds.registry):
        assert until_status(db, put(db, "command.computed", max_attempts=5), "FAILED").attempt_count == 1


def test_commands_leave_no_open_file(url: str, db: Db) -> None:
    def run_some() -> None:
        ids = [put(db, kind, max_attempts=1) for kind in ("command.good", "command.exit", "command.spin")]
        for job_id in ids:
            until_status(db, job_id, "COMPLETED", "FAILED")

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with working(url, kinds.registry):
        until_status(db, put(db, "process.good"), "COMPLETED")
        run_some()
        before = open_files()
        run_some()
        until(lambda: open_files() <= before)


def test_a_program_that_closes_its_output_still_gets_the_rest_of_its_input(url: str, db: Db) -> None:
    registry = Registry()
    an_echo(registry, shell(f"{kinds.ANSWER}; exec 1>&- 2>&-; exec cat > /dev/null"))
    with working(url, registry):
        job_id = put(db, "tool", payload={"frames": "x" * 600_000}, timeout=timedelta(seconds=5), max_attempts=1)
        assert until_status(db, job_id, "COMPLETED", "FAILED").last_error is None


# --- its folder -------------------------------------------------------------------------------------------------

WHERE = """echo "{\\"ok\\": true, \\"result\\": \\"$PWD\\"}" """


def folders(url: str, db: Db, *scripts: str, then: Callable[[str], object] = str) -> list[str]:
    """Where these programs, one after the other, were run; `then` is called with each folder."""
    registry = Registry()
    for number, script in enumerate(scripts):
        registry.processor(f"step{number}", executor="command", command=shell(script))(lambda job: None)
    found = []
    with working(url, registry, commands=1):
        for kind in registry.kinds():
            found.append(until_status(db, put(db, kind, max_attempts=1), "COMPLETED", "FAILED", within=60).result)
            then(found[-1])
    return found


def test_a_folder_that_stayed_empty_is_kept(url: str, db: Db) -> None:
    first, second = folders(url, db, WHERE, WHERE)
    assert first == second
    assert not Path(first).exists()


@pytest.mark.parametrize(
    "change",
    ['cd / && rmdir "$HOME" && ln -s /srv "$HOME"', "chmod 755 .", 'cd / && rmdir "$HOME" && mkdir "$HOME"'],
)
def test_a_folder_that_is_not_as_it_was_is_not_given_to_the_next_program(url: str, db: Db, change: str) -> None:
    first, second = folders(url, db, f"{WHERE}; {change}", WHERE)
    assert first != second
    assert not Path(first).is_symlink()


def test_a_folder_that_was_cleared_away_while_it_waited_is_made_anew(url: str, db: Db) -> None:
    first, second = folders(url, db, WHERE, WHERE, then=lambda folder: Path(folder).rmdir())
    assert first != second


@pytest.mark.at_length  # a folder that is not as it was is removed in every run, above
def test_a_folder_of_any_depth_is_removed_and_its_slot_goes_on(url: str, db: Db) -> None:
    deep = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]"
    first, second = folders(url, db, f'{WHERE}; {sys.executable} -c "{deep}"', WHERE)
    assert first != second
    assert not Path(first).exists()


def test_a_slot_that_cannot_be_prepared_says_so_and_goes_on(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Command) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(Command, "prepare", refuse)
    with working(url, kinds.registry, commands=1) as (_, heard):
        for _ in range(2):
            until_status(db, put(db, "command.good"), "COMPLETED")
        assert "too deep" in heard.wait_for("worker.error").facts["error"]


def test_folders_of_killed_workers_are_removed_by_the_next_one(url: str, db: Db) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = Path(mkdtemp(prefix=f"{command._folders()}{ended.pid}-1-"))
    alive = Path(mkdtemp(prefix=f"{command._folders()}{os.getpid()}-{started(os.getpid())}-"))
    (left / "frames").mkdir()
    with working(url, kinds.registry, commands=1):
        assert not left.exists()
        assert alive.exists()
    alive.rmdir()
