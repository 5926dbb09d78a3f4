"""`snapapp top` on a real terminal: what stands on its screen, and what its keys do."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from snapapp.jobs.cli.top.pages import Queues, Table
from snapapp.jobs.cli.top.plain import print_snapshots
from snapapp.jobs.cli.top.refresher import Overview, Refresher
from snapapp.jobs.cli.top.terminal import Terminal
from snapapp.jobs.os import processes
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.people import failures, overviews
from tests.commands import MEMBER, Call
from tests.databases import Postgres
from tests.factory import MINUTE, Db, ago, make_job, row, scalar
from tests.jobs.working import until

WITHIN = 20.0
_TOKEN = re.compile(r"\x1b\[(\d+);1H|\x1b\[(2[JK])|\x1b\[([0-9;]*)m|\x1b\[(\?\d+[hl])|([^\x1b]+)", re.DOTALL)


class Screen:
    """The sequences that top may send, and no other: rows are written whole, from their first column on."""

    def __init__(self, columns: int, lines: int) -> None:
        self.size = (columns, lines)
        self.rows: dict[int, str] = {}
        self.marked: dict[int, str] = {}  # in reverse
        self.modes: list[str] = []
        self._at, self._is_reverse = 1, False

    def feed(self, text: str) -> None:
        end = 0
        for found in _TOKEN.finditer(text):
            assert found.start() == end, text[end : found.start()]
            end = found.end()
            line, clear, colour, mode, said = found.groups()
            self._at = int(line) if line else self._at
            self._is_reverse = colour == "7" if colour is not None else self._is_reverse
            if clear == "2J":
                self.rows, self.marked = {}, {}
            elif clear:
                self.rows[self._at] = ""
                self.marked.pop(self._at, None)
            self.modes += [mode] if mode else []
            if said:
                self.rows[self._at] = self.rows.get(self._at, "") + said
                if self._is_reverse:
                    self.marked[self._at] = said
        assert end == len(text), text[end:]

    @property
    def text(self) -> str:
        return "\n".join(self.rows[at].rstrip() for at in sorted(self.rows))


class Top:
    """The command on a terminal of its own."""

    def __init__(self, url: str, *arguments: str, columns: int = 100, lines: int = 24, **environment: str) -> None:
        self._ours, self.tty = pty.openpty()
        self.before = termios.tcgetattr(self.tty)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAPAPP_")}
        self._resize(columns, lines)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "snapapp", "top", "--every", "0.2", *arguments],
            env=clean | {"SNAPAPP_DATABASE_URL": url, "TERM": "xterm"} | environment,
            stdin=self.tty,
            stdout=self.tty,
            stderr=self.tty,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )

    def resize(self, columns: int, lines: int) -> None:
        self._resize(columns, lines)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def shows(self, *words: str) -> str:
        """The screen, once all of this stands on it; whole lines are never wider than it."""
        with suppress(AssertionError):  # says more below
            until(lambda: all(word in self.text for word in words) or self.process.poll() is not None, within=WITHIN)
        missing = [word for word in words if word not in self.text]
        assert not missing, f"{missing}, code {self.process.poll()}:\n{self.text}"
        return self.text

    def lacks(self, words: str) -> None:
        until(lambda: words not in self.text, within=WITHIN)

    @property
    def text(self) -> str:
        while select.select([self._ours], [], [], 0)[0]:
            with suppress(OSError):
                self._feed(os.read(self._ours, 65536))
                continue
            break
        columns, lines = self.screen.size
        if self.screen.modes:  # it draws
            assert max(self.screen.rows, default=0) <= lines
            assert all(len(line) <= columns for line in self.screen.rows.values()), self.screen.text
        return self.screen.text

    def end(self) -> int:
        """Its exit code. The screen is read meanwhile: where nobody reads, what a terminal takes is soon full."""
        until(lambda: (self.text, self.process.poll())[1] is not None, within=WITHIN)
        _ = self.text
        return self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self.tty)

    def _resize(self, columns: int, lines: int) -> None:
        self.screen = Screen(columns, lines)
        self._left = b""
        fcntl.ioctl(self.tty, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _feed(self, said: bytes) -> None:
        """As far as it is whole; what was on its way to a screen of another size is not looked at."""
        whole, escape, rest = (self._left + said).rpartition(b"\x1b")
        complete = re.match(rb"\[[0-9;?]*[A-Za-z]", rest)
        whole, self._left = (whole + escape + rest, b"") if complete or not escape else (whole, escape + rest)
        try:
            text = whole.decode()
        except UnicodeDecodeError as error:
            self._left = whole[error.start :] + self._left
            text = whole[: error.start].decode()
        self.screen.feed(text)


@pytest.fixture
def top(url: str) -> Iterator[Callable[..., Top]]:
    started: list[Top] = []

    def begin(*arguments: str, **given: object) -> Top:
        started.append(Top(url, *arguments, **given))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for each in started:
        each.close()


def audited(db: Db) -> list[tuple[str, str, int]]:
    return db.execute("SELECT action, subject, jobs FROM job_audit WHERE door = 'terminal' ORDER BY id").fetchall()


def test_from_a_queue_to_its_job_and_its_end(top: Callable[..., Top], db: Db) -> None:
    """R53: queues, jobs, one job; a failed one is retried after a question, and the audit knows."""
    failed = make_job(db, "FAILED", kind="mail.send", queue="mail", last_error="SMTPError: no route", max_attempts=3)
    waiting = make_job(db, kind="test", queue="other")
    make_job(db, "RUNNING", queue="mail")
    it = top()
    said = it.shows("1 wait", "1 run", "1 failed", "0 workers", "QUEUE", "mail", "other")
    assert [line.split()[:5] for line in said.splitlines()[4:6]] == [
        ["mail", "0", "0", "1", "1"],
        ["other", "1", "1", "0", "0"],
    ]
    it.press("\r")
    it.shows("jobs queue=mail", "SMTPError: no route")
    it.press("/failed\r")
    it.shows("/failed")
    it.lacks("RUNNING")
    it.press("r")
    it.shows(f"Retry job {failed} (mail.send)? [y/N]")
    it.press("n")
    it.shows("Nothing was done.")
    assert (row(db, failed).status, audited(db)) == ("FAILED", [])
    it.press("ry")
    it.shows(f"Job {failed} runs again.", "No job matches.")
    assert row(db, failed).status == "PENDING"
    it.press(f":{waiting}\r")
    it.shows(f"job {waiting}", "No worker is alive.", "priority 0")
    it.press("ny")
    it.shows(f"Job {waiting} is due now.", "has been due")
    it.press("cy")
    it.shows(f"Job {waiting} is cancelled.", "CANCELLED")
    it.press("c")
    it.shows(f"Job {waiting} is CANCELLED: there is nothing to cancel.")
    it.press("n")
    it.shows(f"Job {waiting} is CANCELLED: only a waiting one can be run now.")
    its = [("job.retry", f"job {failed}", 1), ("job.now", f"job {waiting}", 1), ("job.cancel", f"job {waiting}", 1)]
    assert audited(db) == its
    it.press("q")
    assert it.end() == 0


def test_a_queue_is_paused_with_a_reason_and_resumed(top: Callable[..., Top], db: Db) -> None:
    make_job(db, queue="mail")
    it = top()
    it.shows("mail")
    it.press("p")
    it.shows("Pause the queue mail; the reason: _")
    it.press("stocktakinh\x7fg\r")
    it.shows("PAUSED, stocktaking")
    it.press("p")
    it.shows("Resume the queue mail? [y/N]")
    it.press("y")
    it.shows("The queue mail is open.")
    it.lacks("PAUSED")
    assert audited(db) == [("queue.pause", "queue mail", 0), ("queue.resume", "queue mail", 0)]


@pytest.mark.at_length  # a queue is paused and resumed below, and test_audited has groups, in every run
def test_a_group_of_failures_is_retried_whole(top: Callable[..., Top], db: Db) -> None:
    for _ in range(3):
        make_job(db, "FAILED", kind="mail", last_error="OSError: away\nat once")
    make_job(db, "FAILED", kind="mail", last_error="ValueError: other")
    it = top("failures")
    it.shows("OSError: away", "ValueError: other")
    it.press("r")
    it.shows("Retry the 3 jobs of mail that failed with: OSError: away? [y/N]")
    it.press("y")
    it.shows("3 jobs retried.")
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'FAILED'") == 1
    assert audited(db) == [("jobs.retry", "jobs", 3)]


@pytest.mark.at_length  # jobs/rows/test_views has these rows in every run
def test_workers_what_they_have_in_their_hands_and_the_doctor(top: Callable[..., Top], db: Db) -> None:
    job_id = make_job(db, "RUNNING", kind="video.probe")
    roster.beat(db, MEMBER, roster.Report(current_jobs=[job_id]), lives_for=MINUTE)
    db.execute("SELECT pause_queue('forgotten', E'a \x1b]0;title\x07')")  # which would steer a terminal
    db.execute("UPDATE job_queue SET paused_at = now() - interval '2 days'")
    it = top()
    it.press("3")
    it.shows("1 worker\n", "box-1", "1/4")
    it.press("\r")
    it.shows("jobs in the hands of box-1", "video.probe")
    it.press("\x1b")
    it.shows("box-1")
    it.press(":doc\r")
    it.shows("HOW BAD", "The queue forgotten has been paused")
    it.press("/forgotten\r")
    it.lacks("fsync")
    it.press("\r")
    it.shows("notice: QUEUE_PAUSED", r"a \x1b]0;title", "snapapp queues resume forgotten")
    it.press("?")
    it.shows("pause a queue, or resume it")


@pytest.mark.at_length  # jobs/doctor warns in every run
def test_the_first_screen_says_that_the_doctor_warns(top: Callable[..., Top], db: Db) -> None:
    """Here of a worker whose process is gone, although its last lease has not ended."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = replace(MEMBER, machine=processes.machine(), pid=gone.pid, pid_started=1)
    roster.beat(db, dead, roster.Report(), lives_for=MINUTE)
    it = top()
    it.shows("doctor: ", " critical", "0 workers")
    it.press("3")
    it.shows("box-1  LOST")


def test_a_row_that_is_cut_is_shown_whole_below_the_list(top: Callable[..., Top], db: Db) -> None:
    make_job(db, "FAILED", kind="mail", last_error=f"OSError: {'away ' * 15}since noon")
    it = top("failures", columns=80)
    it.shows("OSError: away", "…", "since noon")


def test_the_keys_that_are_offered_are_those_that_the_job_takes(top: Callable[..., Top], db: Db) -> None:
    failed, waiting, running, done = (make_job(db, status) for status in ("FAILED", "PENDING", "RUNNING", "COMPLETED"))
    it = top()
    for job, offered, refused in (
        (failed, "r retry", "cancel"),
        (waiting, "n run now  c cancel", "r retry"),
        (running, "c cancel", "run now"),
        (done, "", "cancel"),
    ):
        it.press(f":{job}\r")
        it.shows(f"job {job}", "may run", offered)
        assert refused not in it.text.splitlines()[-1]
        assert ("finished" in it.text) is (job in (failed, done))  # what a job has not is left out


@pytest.mark.at_length  # from a queue to its job one goes in every run
def test_a_queue_and_a_kind_are_gone_to_by_their_names(top: Callable[..., Top], db: Db) -> None:
    make_job(db, queue="mail", kind="mail.send")
    roster.beat(db, replace(MEMBER, kinds=("mail.send",)), roster.Report(), lives_for=MINUTE)
    it = top()
    it.shows("mail")
    it.press(":mail\r")
    it.shows("jobs queue=mail")
    it.press(":mail.send\r")
    it.shows("jobs kind=mail.send")
    it.press(":nothing\r")
    it.shows("There is no nothing")


@pytest.mark.at_length  # one goes from a queue to its job in every run
def test_the_cursor_stays_with_its_job_while_others_come(top: Callable[..., Top], db: Db) -> None:
    ids = [make_job(db, kind=f"kind-{number}") for number in range(40)]
    it = top("jobs", lines=12)
    it.shows(f"kind-{len(ids) - 1}")
    it.press("\x1b[B")
    until(lambda: it.text and any("kind-38" in line for line in it.screen.marked.values()))
    make_job(db, kind="newcomer")
    it.shows("newcomer")
    assert any("kind-38" in line for line in it.screen.marked.values())
    it.press("G")
    it.shows("kind-0 ")


NARROW = pytest.mark.at_length  # they are cut as queues are


@pytest.mark.parametrize(
    "view",
    ["queues", "doctor", *(pytest.param(view, marks=NARROW) for view in ("jobs", "workers", "failures"))],
)
def test_sixty_columns_are_enough_and_a_row_is_a_line(top: Callable[..., Top], db: Db, view: str) -> None:
    for status in ("PENDING", "RUNNING", "FAILED"):
        make_job(db, status, kind="k" * 60, queue="a-queue-" + "q" * 60, last_error="e" * 300, created_at=ago(days=2))
    roster.beat(db, MEMBER, roster.Report(), lives_for=MINUTE)
    it = top(view, columns=60, lines=16)
    it.shows("1 wait", {"workers": "box-1", "doctor": "WARNING", "queues": "a-queue-"}.get(view, "kkk"))
    it.resize(32, 8)
    it.shows("1 wait", f"1-5 {view}")
    it.resize(140, 30)
    it.shows("? help  q quit", "1 wait")


def test_a_database_that_goes_is_said_and_one_that_comes_back_is_found(
    top: Callable[..., Top], db: Db, server: Postgres
) -> None:
    make_job(db, queue="mail")
    name = scalar(db, "SELECT current_database()")
    it = top()
    it.shows("mail")
    with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'snapapp top'"
        assert admin.execute(ended).fetchall() == [(True,)]
        it.shows("This is from", "The database does not answer", "mail")
        it.press("?")
        it.shows("pause a queue, or resume it")  # which needs no database
        it.press("\x1b")
        it.shows("QUEUE ")
        it.press("2")
        until(lambda: "is not currently accepting connections" in " ".join(it.text.split()))  # the reason, whole
        it.press("1")
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    make_job(db, queue="afterwards")
    it.shows("afterwards")
    it.lacks("does not answer")


def test_a_key_that_ctrl_c_takes_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It throws away what was typed before it: until the next key nobody saw that it was pressed."""
    ours, tty = pty.openpty()
    really_ready = select.select

    def ready_until_it_is_thrown_away(*asked: Any) -> Any:
        ready = really_ready(*asked)
        termios.tcflush(tty, termios.TCIFLUSH)
        return ready

    with os.fdopen(ours, "r+b", buffering=0) as keyboard, os.fdopen(tty, "r+b", buffering=0) as screen:
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(sys, name, screen)
        with Terminal() as terminal, monkeypatch.context() as patch:
            later = threading.Timer(1, keyboard.write, [b"y"])
            later.start()
            keyboard.write(b"x")
            patch.setattr(select, "select", ready_until_it_is_thrown_away)
            assert terminal.keys(timeout=5) == []
            assert terminal.ended_by is None
            later.cancel()
            keyboard.read(4096)


@pytest.mark.parametrize(("end", "code"), [("\x03", 130), ("term", 143)])
def test_whatever_ends_it_the_terminal_is_as_it_was(top: Callable[..., Top], db: Db, end: str, code: int) -> None:
    it = top()
    it.shows("Every queue is empty")
    it.press("\x1a")  # Ctrl-Z would leave its screen to the shell: nothing
    it.process.send_signal(signal.SIGTERM) if end == "term" else it.press(end)
    assert it.end() == code
    assert termios.tcgetattr(it.tty) == it.before
    assert it.screen.modes == ["?1049h", "?25l", "?7l", "?7h", "?25h", "?1049l"]


def test_without_a_terminal_or_where_it_is_dumb_it_prints(
    top: Callable[..., Top], call: Call, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # as it does itself, and for the tests after this one, too
    make_job(db, queue="mail")
    db.execute("SELECT pause_queue('mail', 'stocktaking')")
    answer = call("top", "--once")
    assert (answer.code, answer.err) == (0, "")
    assert re.search(r"1 wait · 0 run .*\nQUEUE .*\nmail +1 .*PAUSED, stocktaking\n$", answer.out)
    it = top(TERM="dumb")
    it.shows("PAUSED, stocktaking\r\n\r\n")
    assert "\x1b" not in it.text
    it.press("\x03")
    assert it.end() == 130


def test_a_count_that_stopped_says_so(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # as it does itself, and for the tests after this one, too
    for queue, count in (("mail", 3), ("old", 1)):
        for _ in range(count):
            make_job(db, "FAILED", queue=queue)
    for _ in range(3):
        make_job(db, "RUNNING", queue="mail")
    monkeypatch.setattr(overviews, "GLANCE", 2)
    said = call("top", "--once").out
    assert " · 2+ run · 2+ failed · " in said
    assert re.search(r"\nmail +0 +0 +2\+ +2\+", said)


def test_failures_beyond_the_largest_groups_are_told(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # as it does itself, and for the tests after this one, too
    for error in ("a", "a", "b", "c"):
        make_job(db, "FAILED", last_error=error)
    monkeypatch.setattr(failures, "GROUPS", 1)
    assert call("top", "failures", "--once").out.endswith("\n2 more went wrong in other ways\n")


def test_where_nobody_can_press_enter_the_cure_stands_below_what_is_wrong(
    call: Call, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # as it does itself, and for the tests after this one, too
    make_job(db, queue="mail")
    db.execute("SELECT pause_queue('mail', 'stocktaking')")
    said = call("top", "doctor", "--once").out
    assert "The queue mail has been paused" in said
    assert "QUEUE_PAUSED: If the reason is gone, resume it.  snapapp queues resume mail\n" in said


def test_a_terminal_that_only_prints_does_not_have_the_doctor_examine_at_each_look(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # as it does itself, and for the tests after this one, too
    examined, looked = [], []

    class Thrice(Queues):
        def read(self, db: Db, overview: Overview) -> Table:
            looked.append(overview.findings)
            if len(looked) == 3:
                raise KeyboardInterrupt
            return super().read(db, overview)

    def examine() -> list[Any]:
        examined.append(len(looked))
        return []

    refresher = Refresher(lambda: connect(url, name="snapapp top"), examine, every=0.01)
    with pytest.raises(KeyboardInterrupt):
        print_snapshots(refresher, Thrice(), once=False)
    assert (examined, looked) == ([0], [[], [], []])


def test_it_is_not_loaded_with_anything_else() -> None:
    build = "import sys; from snapapp.cli.arguments import parser_for; parser_for(['top'])"
    script = f"{build}; print('snapapp.jobs.cli.top' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"
