"""The command as people type it: its answers, its exit codes, and what it leaves behind."""

import io
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from snapapp.__main__ import main
from snapapp.cli import service
from snapapp.jobs import schema
from snapapp.jobs.os import processes
from snapapp.jobs.rows import roster, views
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.roster import Member, Report
from snapapp.postgres import postmaster
from tests import ROOT
from tests.conftest import Postgres
from tests.factory import Db, ago, hence, make_job, make_jobs, row, statuses
from tests.running import Running

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
COMMANDS = [
    "serve",
    "worker",
    "supervisor",
    "migrate",
    "psql",
    "config",
    "jobs",
    "queues",
    "workers",
    "schedules",
    "limits",
    "fleet",
    "tenants",
    "demo",
    "import-legacy",
    "doctor",
    "check-deploy",
    "kinds",
    "bench",
    "completion",
    "version",
]
COMMANDS_PAGE = ROOT / "docs" / "commands.md"
STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
WITHIN = 30.0


class Answer(NamedTuple):
    code: int | str | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)


Call = Callable[..., Answer]


@pytest.fixture
def bare_call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Call]:
    """The command in this process, in an empty folder, with nothing set."""
    for name in [name for name in os.environ if name.startswith("SNAPAPP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        try:
            code: int | str | None = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        return Answer(code, *capsys.readouterr())

    yield call
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def call(bare_call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same on the test's own database."""
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", url)
    return bare_call


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*arguments: str, **settings: str) -> Running:
        started.append(Running(tmp_path, *arguments, **settings))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_status(db: Db, job_id: int, status: str) -> None:
    until(lambda: row(db, job_id).status == status)


def enqueued(answer: Answer) -> int:
    assert answer.code == 0, answer
    return int(answer.out.split()[1])


# --- what can be typed ------------------------------------------------------------------------------------------


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    script = "import sys; from snapapp.__main__ import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    described = [line.split()[0] for line in said.splitlines() if re.match(r" {4}\S", line)]
    assert described == COMMANDS
    assert not {"psycopg", "sqlalchemy", "alembic", "rich", "apscheduler"} & set(said.split())


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "psql"])
def test_every_command_has_help(bare_call: Call, command: str) -> None:
    answer = bare_call(command, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"usage: snapapp {command}")


def test_the_documentation_names_every_command_in_the_order_of_help(call: Call) -> None:
    rows = re.findall(r"^\| `snapapp ([a-z-]+)(?: ([a-z|\\-]+))?", COMMANDS_PAGE.read_text(), re.MULTILINE)
    assert [command for command, _ in rows] == COMMANDS
    for command, acts in rows:
        if acts:
            assert re.findall(r"^    ([a-z-]+)", call(command, "--help").out, re.MULTILINE) == acts.split("\\|")


@pytest.mark.parametrize(
    "typed",
    [
        "nonsense",
        "jobs nonsense",
        "serve now",
        "worker --once --drain",
        "worker --concurrency 0",
        "worker --concurrency many",
        "worker --queues a,b\tc",
        "jobs list --status DONE",
        "jobs list --limit 0",
        "jobs list --limit 10001",
        "jobs list --before 0",
        "jobs list --before 9999999999999999999",
        "jobs list --kind \udcff",
        "jobs show",
        "jobs show x",
        "jobs show -1",
        "jobs show 1_000",
        "jobs show ٣",
        "jobs enqueue",
        "jobs enqueue test {} --delay 10",
        "jobs enqueue test {} --delay -1s",
        "jobs enqueue test {} --delay 1s --run-at 2030-01-01T00:00:00Z",
        "jobs enqueue test {} --run-at 2030-01-01T00:00:00",
        "jobs enqueue test {} --run-at tomorrow",
        "jobs enqueue test {} --priority high",
        "jobs retry",
        "jobs retry 1 --failed",
        "jobs retry 1 --kind test",
        "jobs retry --kind test",
        "jobs retry --waiting",
        "jobs cancel",
        "jobs cancel --failed",
        "jobs retry 1 --preview",
        "jobs replay",
        "jobs replay 1 --ended",
        "jobs replay --status failed",
        "jobs discard --failed",
        "queues pause",
    ],
)
def test_what_cannot_be_understood_exits_with_2_and_says_why(call: Call, typed: str) -> None:
    answer = call(*typed.split(" "))
    assert answer.code == 2
    assert answer.out == ""
    assert "error: " in answer.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("jbos list", "jobs"),
        ("limits lst", "list"),
        ("jobs list --knd x", "--kind"),
        ("jobs --status fialed", "FAILED"),
        ("doctor --only conections", "connections"),
    ],
)
def test_what_was_meant_is_said(bare_call: Call, typed: str, meant: str) -> None:
    answer = bare_call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith(f"; did you mean {meant}?\n")


@pytest.mark.parametrize("family", ["jobs", "queues", "workers", "schedules", "limits", "fleet", "tenants"])
def test_a_family_alone_lists(call: Call, family: str) -> None:
    assert call(family) == call(family, "list")
    assert call(family, "--json").json is not None


def test_a_list_of_jobs_loads_no_more_than_it_needs(url: str) -> None:
    script = "import sys; from snapapp.__main__ import main; main(['jobs', 'list']); print(*sys.modules)"
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=settings)
    loaded = set(said.stdout.split())
    assert "snapapp.jobs.rows.views" in loaded
    heavy = {"sqlalchemy", "alembic", "fastapi", "pydantic", "rich", "snapapp.jobs.cli.fleet"}
    product = {f"snapapp.{name}" for name in ("api", "web", "domain", "processing", "media", "storage", "demo")}
    assert loaded & (heavy | product | {"snapapp.jobs.worker", "snapapp.jobs.doctor"}) == set()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("jo", ["jobs"]),
        ("jobs re", ["retry", "replay", "reclaim"]),
        ("jobs list --st", ["--status"]),
        ("jobs list --status C", ["COMPLETED", "CANCELLED"]),
        ("jobs list --kind ", []),
        ("completion z", ["zsh"]),
    ],
)
def test_bash_completes(bare_call: Call, tmp_path: Path, typed: str, offered: list[str]) -> None:
    (tmp_path / "completion.bash").write_text(bare_call("completion", "bash").out)
    words = ["snapapp", *typed.split(" ")]
    script = 'source completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _snapapp; echo "${COMPREPLY[@]}"'
    bash = ["bash", "--norc", "-c", script, "bash", *words]
    assert subprocess.run(bash, capture_output=True, text=True, check=True).stdout.split() == offered


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", '("jobs list --status") found=(PENDING RUNNING RETRY_WAIT COMPLETED FAILED CANCELLED) ;;'),
        (
            "fish",
            "complete -c snapapp -n '__fish_seen_subcommand_from jobs; and __fish_seen_subcommand_from list' -l kind",
        ),
    ],
)
def test_other_shells_are_told_the_same(bare_call: Call, shell: str, line: str) -> None:
    answer = bare_call("completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert line in answer.out


def test_without_a_command_the_help_is_shown(bare_call: Call) -> None:
    answer = bare_call()
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == bare_call("--help").out


def test_the_version_is_said_in_both_ways(bare_call: Call) -> None:
    assert bare_call("version") == bare_call("--version")


# --- errors that people can answer ------------------------------------------------------------------------------


def test_every_wrong_setting_is_named_at_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_PORT", "x")
    monkeypatch.setenv("SNAPAPP_ENV", "y")
    answer = call("jobs", "list")
    assert (answer.code, answer.out) == (1, "")
    assert "SNAPAPP_PORT" in answer.err
    assert "SNAPAPP_ENV" in answer.err


def test_a_misspelt_setting_is_a_warning(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_WROKER_ID", "x")
    answer = call("jobs", "list")
    assert answer.code == 0
    assert "did you mean SNAPAPP_WORKER_ID?" in answer.err


@pytest.mark.parametrize(
    "typed",
    [
        "jobs list",
        "jobs enqueue test",
        "queues list",
        "workers list",
        "migrate",
        "worker --once",
        "worker --drain",
    ],
)
def test_a_database_that_does_not_answer_is_one_line(
    bare_call: Call, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", NOWHERE)
    monkeypatch.setattr(service, "_PATIENCE", timedelta(0))
    answer = bare_call(*typed.split())
    assert (answer.code, answer.out) == (1, "")
    [line] = [line for line in answer.err.splitlines() if line.startswith("snapapp: ")]
    assert line.startswith("snapapp: The database cannot be reached: ")
    assert "Traceback" not in answer.err


def test_with_debug_an_error_comes_with_its_traceback(bare_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("SNAPAPP_LOG_LEVEL", "DEBUG")
    with pytest.raises(psycopg.OperationalError):
        bare_call("jobs", "list")


@pytest.mark.parametrize("typed", ["jobs list", "worker", "worker --drain", "migrate", "psql", "workers list"])
def test_no_command_but_serve_makes_a_data_directory(bare_call: Call, tmp_path: Path, typed: str) -> None:
    answer = bare_call(*typed.split())
    assert (answer.code, answer.out) == (1, "")
    assert f"There is no database in {tmp_path}/var/postgres" in answer.err
    assert "SNAPAPP_DATABASE_URL was looked for in the environment and /etc/snapapp/snapapp.env" in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "environment"), [("jobs list", "dev"), ("worker", "dev"), ("worker --drain", "dev"), ("serve", "prod")]
)
def test_a_database_without_the_schema_names_the_command_to_type(
    bare_call: Call, empty_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str, environment: str
) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", empty_url)
    monkeypatch.setenv("SNAPAPP_ENV", environment)
    monkeypatch.setenv("SNAPAPP_INTERNAL_TOKEN", "a-token-for-the-tests")
    monkeypatch.setenv("SNAPAPP_SIGNING_SECRET", "a-secret-of-the-tests-that-signs-links")
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path))
    answer = bare_call(*typed.split())
    assert (answer.code, answer.out) == (1, "")
    assert "`snapapp migrate`" in answer.err


STARTS = ["migrate", "serve", "worker", "worker --drain", "supervisor"]


def refused(call: Call, typed: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", url)
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SNAPAPP_PORT", "0")
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (1, "")
    assert "Traceback" not in answer.err
    [line] = [line for line in answer.err.splitlines() if line.startswith("snapapp: ")]
    return line


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("typed", STARTS)
def test_a_database_that_is_not_utf8_is_refused_at_the_start(
    bare_call: Call, server: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str, encoding: str
) -> None:
    admin = psycopg.connect(server.url_of("postgres"), autocommit=True)
    admin.execute(f"CREATE DATABASE other ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        said = refused(bare_call, typed, server.url_of("other"), monkeypatch, tmp_path)
    finally:
        admin.execute("DROP DATABASE other WITH (FORCE)")
        admin.close()
    assert said.startswith(f"snapapp: The database has the encoding {encoding}, and UTF8 is needed")


@pytest.mark.parametrize("typed", STARTS)
def test_a_server_that_is_too_old_is_refused_at_the_start(
    bare_call: Call, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str
) -> None:
    monkeypatch.setattr(schema, "OLDEST", 99)  # for want of an old one
    said = refused(bare_call, typed, url, monkeypatch, tmp_path)
    assert re.fullmatch(r"snapapp: The server is PostgreSQL \d+, and 99 or newer is needed\.", said)


def test_postgresql_14_is_old_enough() -> None:
    assert schema.unfit(140000, "UTF8") is None
    assert schema.unfit(130022, "UTF8") == "The server is PostgreSQL 13, and 14 or newer is needed."


def test_a_module_that_cannot_be_imported_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_PROCESSORS", "no.such.module")
    for typed in (("worker",), ("serve",), ("jobs", "enqueue", "test")):
        answer = call(*typed)
        assert answer.code == 1
        assert "snapapp: SNAPAPP_PROCESSORS names no.such.module, which cannot be imported" in answer.err


def test_a_module_that_python_would_not_find_because_it_has_one_of_that_name_is_refused(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "email.py").write_text("from snapapp.jobs import processor\n")
    monkeypatch.setenv("SNAPAPP_PROCESSORS", "email")
    answer = call("jobs", "enqueue", "test")
    assert answer.code == 1
    assert answer.err == (
        "snapapp: SNAPAPP_PROCESSORS names email, which is a module of Python itself: give yours another name\n"
    )


def test_a_module_that_declares_nothing_is_a_warning(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "declares_nothing.py").write_text("def send(job): ...\n")
    monkeypatch.setenv("SNAPAPP_PROCESSORS", "declares_nothing,snapapp.demo.kinds")
    answer = call("jobs", "enqueue", "test")
    assert answer.code == 0
    warned = [line for line in answer.err.splitlines() if "declares no processor" in line]
    assert len(warned) == 1
    assert warned[0].endswith(
        f"names declares_nothing, which declares no processor and no schedule: {tmp_path}/declares_nothing.py"
    )


def test_kinds_are_shown_with_what_they_take(bare_call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It needs no database."""
    (tmp_path / "typed_kinds.py").write_text(
        "from dataclasses import dataclass\n"
        "from snapapp.jobs import Job, processor\n"
        "@dataclass\nclass Mail:\n    to: str\n    copies: int = 1\n"
        "@processor('mail.print', queue='mail', max_attempts=7)\ndef out(job: Job[Mail]) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SNAPAPP_PROCESSORS", "typed_kinds,snapapp.demo.kinds")
    lines = bare_call("kinds").out.splitlines()
    assert [line.split() for line in lines if line.startswith("mail.print")] == [
        ["mail.print", "mail", "thread", "7", "to,", "copies"]
    ]
    found = {one["kind"]: one for one in bare_call("kinds", "--json").json}
    assert found["mail.print"]["payload"]["required"] == ["to"]
    assert (found["demo.fail"]["payload"], found["demo.crunch"]["executor"]) == (None, "process")


def test_ctrl_c_is_silent(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(views, "jobs", interrupted)
    assert call("jobs", "list") == Answer(130, "", "")


@pytest.mark.parametrize("typed", ["config", "config --json", "jobs list", "jobs list --json", "--help", "version"])
def test_a_reader_that_has_gone_away_is_no_error(url: str, typed: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    command = [sys.executable, "-m", "snapapp", *typed.split()]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=settings, check=False, timeout=WITHIN)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


# --- migrate, config, psql --------------------------------------------------------------------------------------


def test_migrate_brings_the_schema_and_checks_it(
    bare_call: Call, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", empty_url)
    assert bare_call("migrate", "--check").code == 1
    assert bare_call("jobs", "list").code == 1
    answer = bare_call("migrate")
    assert answer.code == 0
    assert answer.out.startswith("The database is now at revision ")
    assert bare_call("migrate", "--check") == bare_call("migrate") == (0, "The database has the newest schema.\n", "")
    assert bare_call("jobs", "list").code == 0


def test_config_shows_every_setting_and_no_secret(bare_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", "postgresql://ana:hidden@db/snap")
    monkeypatch.setenv("SNAPAPP_PORT", "8123")
    for options in ([], ["--explain"], ["--json"]):
        answer = bare_call("config", *options)
        assert answer.code == 0
        assert "SNAPAPP_WORKER_POLL_DELAY_MS" in answer.out
        assert "8123" in answer.out
        assert "hidden" not in answer.out
    rows = {each["name"]: each for each in bare_call("config", "--json").json}
    assert rows["SNAPAPP_PORT"] == {
        "name": "SNAPAPP_PORT",
        "value": "8123",
        "source": "environment",
        "description": "The port to listen on; 0 takes any free one.",
    }
    assert "The port to listen on; 0 takes any free one." in bare_call("config", "--explain").out


@pytest.mark.parametrize(
    ("typed", "code", "out"),
    [(["-Atc", "SELECT 6 * 7"], 0, "42\n"), (["-c", "SELECT nonsense"], 1, ""), (["--no-such-option"], 1, "")],
)
def test_psql_takes_psqls_arguments_and_returns_its_exit_code(
    url: str, run: Callable[..., Running], typed: list[str], code: int, out: str
) -> None:
    psql = run("psql", *typed, SNAPAPP_DATABASE_URL=url)
    assert psql.end() == code
    assert psql.said().startswith(out)


# --- jobs -------------------------------------------------------------------------------------------------------


def test_an_empty_queue_is_said_to_be_empty(call: Call) -> None:
    assert call("jobs", "list") == (0, "No job matches.\n", "")
    assert call("jobs", "list", "--json").json == {"jobs": [], "before": None}
    assert call("queues", "list").out == "Every queue is empty, and none is paused.\n"
    assert call("workers", "list").out == "No worker is on the roster.\n"
    assert "No job ended within the last hour." in call("jobs", "stats").out


def test_jobs_are_listed_newest_first_in_whole_lines(call: Call, db: Db) -> None:
    long_kind = "k" * 200
    waiting = make_job(db, next_retry_at=hence(minutes=10))
    failed = make_job(db, "FAILED", kind=long_kind, last_error="e" * 90 + "\nmore", attempt_count=3)
    running = make_job(db, "RUNNING", progress={"percent": 40, "note": "frames"}, started_at=ago(seconds=5))
    answer = call("jobs", "list")
    header, *lines = answer.out.splitlines()
    assert header.split() == ["ID", "STATUS", "KIND", "QUEUE", "TRY", "WHEN", "NOTE"]
    assert [line.split()[:2] for line in lines] == [
        [str(running), "RUNNING"],
        [str(failed), "FAILED"],
        [str(waiting), "PENDING"],
    ]
    assert "40 % frames" in lines[0]
    assert long_kind in lines[1]
    assert "3/3" in lines[1]
    assert lines[1].endswith("e" * 90)
    assert "in 9 min" in lines[2]
    assert "\x1b" not in answer.out


def test_a_terminal_of_80_columns_is_enough(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute("ALTER TABLE snap_processing_job ALTER id RESTART WITH 9000000000000000")
    ids = make_jobs(db, 3, status="FAILED", kind="snap.process", queue="media", last_error="e" * 500)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    answer = call("jobs", "list")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in answer.out.splitlines()]
    assert answer.out != "\n".join(plain) + "\n"
    assert max(map(len, plain)) <= 80
    assert all(any(line.startswith(str(job_id)) for line in plain) for job_id in ids)


def test_what_jobs_say_cannot_steer_the_terminal_or_the_table(call: Call, db: Db) -> None:
    evil = "\x1b[2J\x07[red]bold[/red]\rpwned\u202e"
    job_id = make_job(db, "FAILED", kind="[bold]kind[/bold]", last_error=evil, progress={"percent": 1, "note": evil})
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)", [job_id, evil])
    for answer in (call("jobs", "list"), call("jobs", "show", job_id)):
        assert "[bold]kind[/bold]" in answer.out
        assert "[red]bold[/red]" in answer.out
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(answer.out)


def test_a_list_is_filtered_limited_and_paged(call: Call, db: Db) -> None:
    first, second, third = make_jobs(db, 3, kind="mail.send")
    failed = make_job(db, "FAILED", kind="mail.send", queue="mail", tenant="olho")
    make_job(db, "FAILED")

    def ids(*options: object) -> list[int]:
        return [job["id"] for job in call("jobs", "list", "--json", *options).json["jobs"]]

    assert ids("--kind", "mail.send") == [failed, third, second, first]
    assert ids("--status", "failed", "--kind", "mail.send") == [failed]
    assert ids("--queue", "mail") == ids("--tenant", "olho") == [failed]
    assert ids("--kind", "mail.send", "--before", third) == [second, first]
    answer = call("jobs", "list", "--limit", 2)
    assert answer.err == f"Older ones: --before {failed}\n"
    assert len(answer.out.splitlines()) == 3


def test_a_job_is_shown_in_words(call: Call, db: Db) -> None:
    job_id = make_job(
        db,
        "RUNNING",
        payload={"to": "ação"},
        progress={"percent": 40, "note": "frames"},
        errors=[{"attempt": 1, "error": "ValueError: no", "trace": "  File x, line 1\n", "ran_ms": 12.5}],
        unique_key="ana",
        unique_scope="ever",
        replay_of=7,
        timeout_ms=5000,
    )
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, 'twelve frames')", [job_id])
    answer = call("jobs", "show", job_id)
    assert answer.code == 0
    for words in (
        "worker worker, last heartbeat",
        "████████░░░░░░░░░░░░ 40 % frames",
        '{"to": "ação"}',
        "ana (ever)",
        "job 7",
        "timeout       5 s\n",
        "attempt 1, after 12 ms, failed: ValueError: no",
        "File x, line 1",
        "twelve frames",
    ):
        assert words in answer.out
    shown = call("jobs", "show", job_id, "--json").json
    assert shown["payload"] == {"to": "ação"}
    assert [entry["message"] for entry in shown["logs"]] == ["twelve frames"]
    assert set(row(db, job_id)._fields) <= set(shown)


def test_a_job_that_is_not_there_is_said_not_to_be(call: Call) -> None:
    for verb in ("show", "replay"):
        assert call("jobs", verb, 42) == (1, "", "snapapp: there is no job 42\n")
    for verb in ("retry", "cancel"):
        assert call("jobs", verb, 42) == (1, "", "there is no job 42\n")


# --- enqueue ----------------------------------------------------------------------------------------------------


def test_a_job_is_added_with_all_that_was_said_of_it(call: Call, db: Db) -> None:
    options = "--queue media --priority -5 --run-at 2031-02-03T04:05:06-03:00 --unique-key a --max-attempts 9"
    answer = call(
        "jobs", "enqueue", "test", '{"a": "ação"}', *options.split(), "--tenant", "t", "--concurrency-key", "c"
    )
    it = row(db, enqueued(answer))
    assert (it.kind, it.payload, it.queue, it.priority, it.tenant) == ("test", {"a": "ação"}, "media", -5, "t")
    assert (it.unique_key, it.max_attempts, it.concurrency_key) == ("a", 9, "c")
    assert it.next_retry_at.isoformat() == "2031-02-03T07:05:06+00:00"
    assert "No worker that is alive knows the kind test" in answer.err


def test_a_delay_is_said_with_its_unit(call: Call, db: Db) -> None:
    for text, seconds in (("250ms", 0.25), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("1d", 86400)):
        it = row(db, enqueued(call("jobs", "enqueue", "test", "--delay", text)))
        assert (it.next_retry_at - it.created_at).total_seconds() == seconds


def test_a_kinds_own_queue_is_used_and_a_living_worker_is_known(call: Call, db: Db) -> None:
    roster.beat(db, MEMBER, Report(), lives_for=timedelta(minutes=1))
    answer = call("jobs", "enqueue", "demo.hello")
    assert answer.err == ""
    assert (row(db, enqueued(answer)).queue, row(db, enqueued(answer)).max_attempts) == ("demo", 3)


def test_the_setting_for_attempts_counts(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_JOB_MAX_ATTEMPTS", "8")
    assert row(db, enqueued(call("jobs", "enqueue", "test"))).max_attempts == 8
    monkeypatch.delenv("SNAPAPP_JOB_MAX_ATTEMPTS")
    assert row(db, enqueued(call("jobs", "enqueue", "test"))).max_attempts == 3


def test_a_payload_comes_from_a_file_or_stdin(
    call: Call, db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.json").write_text('{"a": "ação"}', encoding="utf-8")
    assert row(db, enqueued(call("jobs", "enqueue", "test", "@payload.json"))).payload == {"a": "ação"}
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"b": 1}\n'))
    assert row(db, enqueued(call("jobs", "enqueue", "test", "-"))).payload == {"b": 1}
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"c": 1}'))
    answer = call("jobs", "enqueue", "test", "-", "--json")
    assert row(db, json.loads(answer.out)["id"]).payload == {"c": 1}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["test", "{'a': 1}"], "the payload is not JSON: Expecting property name"),
        (["test", ""], "the payload is not JSON: Expecting value"),
        (["test", "[1]"], "the payload must be a JSON object, not list"),
        (["test", '{"a": NaN}'], "the payload is not JSON that PostgreSQL can keep"),
        (["test", '{"a": "\\u0000"}'], "the payload holds a NUL character"),
        (["test", '{"a": "\\ud800"}'], "the payload is not JSON that PostgreSQL can keep"),
        (["test", '{"a":' * 100_000], "the payload cannot be read: maximum recursion depth"),
        (["test", "@nowhere.json"], "nowhere.json: No such file or directory"),
        (["test", "@binary"], "the payload cannot be read: 'utf-8' codec can't decode"),
        (["test", "@large.json"], "more than the 1048576 allowed"),
        (["", "{}"], "a job needs a kind"),
        (["test", "--priority", "5000"], "priority must be a whole number from -1000 to 1000, not 5000"),
        (["test", "--max-attempts", "0"], "max_attempts must be a whole number from 1 to 1000, not 0"),
        (["test", "--queue", ""], "queue must not be empty"),
        (["test", "--delay", "5000d"], "delay must be a timedelta"),
    ],
)
def test_a_job_that_cannot_be_is_one_line(call: Call, db: Db, tmp_path: Path, arguments: list[str], why: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large.json").write_text(json.dumps({"a": "b" * 2**20}))
    answer = call("jobs", "enqueue", *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("snapapp: ")
    assert why in answer.err
    assert len(answer.err.splitlines()) == 1
    assert statuses(db) == {}


# --- retry, cancel, replay --------------------------------------------------------------------------------------


def test_jobs_are_retried_by_id_and_each_refusal_says_why(call: Call, db: Db) -> None:
    failed, cancelled = make_job(db, "FAILED", attempt_count=3), make_job(db, "CANCELLED")
    running = make_job(db, "RUNNING")
    answer = call("jobs", "retry", failed, running, 4242, cancelled)
    assert answer.code == 1
    assert answer.out == f"Job {failed} runs again\nJob {cancelled} runs again\n"
    assert answer.err == (
        f"job {running} is RUNNING: only a FAILED or CANCELLED job can be retried\nthere is no job 4242\n"
    )
    assert statuses(db) == {failed: "PENDING", cancelled: "PENDING", running: "RUNNING"}
    assert row(db, failed).attempt_count == 0


def test_all_dead_letters_are_retried_and_the_refused_are_counted(call: Call, db: Db) -> None:
    held = make_job(db, "FAILED", unique_key="a", unique_scope="live")
    holder = make_job(db, unique_key="a", unique_scope="live")
    failed = make_jobs(db, 250, status="FAILED")
    answer = call("jobs", "retry", "--failed", "--yes")
    assert (answer.code, answer.out) == (0, "250 jobs retried, 1 refused.\n")
    assert answer.err == f"job {held} cannot be retried: job {holder} holds its unique key a\n"
    assert {statuses(db)[job_id] for job_id in failed} == {"PENDING"}
    assert call("jobs", "retry", "--failed", "--yes", "--json").json == {
        "done": [],
        "refused": [{"id": held, "why": f"job {held} cannot be retried: job {holder} holds its unique key a"}],
    }


def test_a_bulk_retry_is_narrowed_by_kind_and_queue(call: Call, db: Db) -> None:
    wanted = make_job(db, "FAILED", kind="a", queue="x")
    others = [make_job(db, "FAILED", kind="a", queue="y"), make_job(db, "FAILED", kind="b", queue="x")]
    assert call("jobs", "retry", "--failed", "--kind", "a", "--queue", "x", "--yes").out == "1 job retried.\n"
    assert statuses(db) == {wanted: "PENDING", others[0]: "FAILED", others[1]: "FAILED"}
    assert call("jobs", "retry", "--failed", "--kind", "none").out == "No jobs retried.\n"


def test_a_preview_counts_and_shows_and_changes_nothing(call: Call, db: Db) -> None:
    failed = make_jobs(db, 12, status="FAILED", last_error="Timeout: no answer")
    make_job(db, "FAILED", last_error="ValueError")
    before = statuses(db)
    answer = call("jobs", "retry", "--failed", "--error", "timeout", "--preview")
    assert answer.code == 0
    assert answer.out.startswith("This would retry 12 jobs, the newest of them:\n")
    assert [line.split()[0] for line in answer.out.splitlines()[-10:]] == [str(job_id) for job_id in failed[:1:-1]]
    assert call("jobs", "discard", "--failed", "--reason", "x", "--preview", "--json").json["matching"] == 13
    assert call("jobs", "retry", "--failed", "--kind", "none", "--preview").out == "This would retry no jobs.\n"
    assert statuses(db) == before
    assert call("jobs", "retry", "--failed", "--error", "timeout", "--yes").out == "12 jobs retried.\n"


def test_jobs_are_chosen_by_age_and_by_the_hash_of_their_work(call: Call, db: Db) -> None:
    """R36, R48: replayed by their hash, too."""
    work = {"unique_key": "spec:9f86d081884c", "unique_scope": "live"}
    done = make_job(db, "COMPLETED", created_at=ago(days=3), **work)
    failed = make_job(db, "FAILED", created_at=ago(days=1), **work)
    make_job(db, "COMPLETED")
    assert [job["id"] for job in call("jobs", "list", "--hash", "9F86D0", "--json").json["jobs"]] == [failed, done]
    assert call("jobs", "list", "--hash", "9f86d0", "--older-than", "2d", "--json").json["jobs"][0]["id"] == done
    assert call("jobs", "replay", "--ended", "--hash", "9f86d081", "--yes").out == "1 job replayed.\n"
    assert (
        call("jobs", "replay", "--ended", "--status", "failed", "--older-than", "2h", "--yes").out
        == "1 job replayed.\n"
    )
    copies = db.execute("SELECT replay_of FROM snap_processing_job WHERE status = 'PENDING' ORDER BY id").fetchall()
    assert copies == [(done,), (failed,)]
    assert call("jobs", "list", "--hash", "xyz").code == 2


def test_dead_letters_are_discarded_by_a_filter(call: Call, db: Db) -> None:
    gone, kept = make_job(db, "FAILED", queue="a"), make_job(db, "FAILED", queue="b")
    answer = call("jobs", "discard", "--failed", "--queue", "a", "--reason", "old", "--yes")
    assert (answer.code, answer.out) == (0, "1 job discarded.\n")
    assert statuses(db) == {gone: "CANCELLED", kept: "FAILED"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_many_are_only_touched_after_a_yes(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    [failed] = make_jobs(db, 1, status="FAILED")
    answer = call("jobs", "retry", "--failed")
    assert answer.code == 2
    assert "this would retry 1 job: add --yes" in answer.err
    for typed, code, status in (("\n", 1, "FAILED"), ("no\n", 1, "FAILED"), ("", 1, "FAILED"), ("y\n", 0, "PENDING")):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        answer = call("jobs", "retry", "--failed")
        assert (answer.code, row(db, failed).status) == (code, status)
        assert answer.err.startswith("Retry 1 job? [y/N] ")


def test_jobs_are_cancelled_by_id(call: Call, db: Db) -> None:
    waiting, running, done = make_job(db), make_job(db, "RUNNING"), make_job(db, "COMPLETED")
    answer = call("jobs", "cancel", waiting, running, done)
    assert answer.code == 1
    assert answer.out == f"Job {waiting} is cancelled\nJob {running} is running and was asked to stop\n"
    assert answer.err == f"job {done} is COMPLETED: there is nothing to cancel\n"
    assert row(db, running).cancel_requested_at is not None


def test_all_waiting_jobs_are_cancelled(call: Call, db: Db) -> None:
    waiting = [*make_jobs(db, 2, kind="a"), make_job(db, "RETRY_WAIT", kind="a", losses=2, gate="alone")]
    others = [make_job(db, kind="b"), make_job(db, "RUNNING", kind="a")]
    assert call("jobs", "cancel", "--waiting", "--kind", "a", "--yes").out == "3 jobs cancelled.\n"
    assert {row(db, job_id).status for job_id in waiting} == {"CANCELLED"}
    assert [row(db, job_id).status for job_id in others] == ["PENDING", "RUNNING"]


def test_a_replay_is_a_copy(call: Call, db: Db) -> None:
    job_id = make_job(db, "COMPLETED", payload={"a": 1})
    answer = call("jobs", "replay", job_id)
    assert answer.out == f"Job {enqueued(answer)} repeats job {job_id}\n"
    assert (row(db, enqueued(answer)).payload, row(db, enqueued(answer)).replay_of) == ({"a": 1}, job_id)


# --- queues and workers -----------------------------------------------------------------------------------------

MEMBER = Member(
    id="a" * 32,
    name="box-1",
    host="box",
    machine="boot",
    pid=1,
    pid_started=1,
    queues=["demo"],
    kinds=["demo.hello"],
    slots=4,
)


def test_a_queue_is_paused_with_a_reason_and_resumed(call: Call, db: Db) -> None:
    make_job(db, queue="mail")
    assert call("queues", "pause", "mail", "--reason", "the server is down").code == 0
    assert "the server is down" in call("queues", "list").out
    [mail] = call("queues", "list", "--json").json
    assert (mail["queue"], mail["pending"], mail["paused_reason"]) == ("mail", 1, "the server is down")
    db.execute("INSERT INTO snap_processing_job (kind, queue) SELECT 'test', 'full' FROM generate_series(1, 10001)")
    assert call("queues", "list").out.splitlines()[1].split()[:4] == ["full", "10,000+", "0+", "10,000+"]
    assert call("queues", "resume", "mail", "--json").json == {"queue": "mail", "paused": False}
    assert call("queues", "list", "--json").json[0]["paused_at"] is None
    assert "mail" in call("jobs", "stats").out


def test_workers_are_listed_with_their_whole_ids(call: Call, db: Db) -> None:
    roster.beat(db, MEMBER, Report(current_jobs=[1]), lives_for=timedelta(minutes=1))
    answer = call("workers", "list")
    assert MEMBER.id in answer.out
    assert "1/4" in answer.out
    [worker] = call("workers", "list", "--json").json
    assert (worker["id"], worker["kinds"], worker["status"]) == (MEMBER.id, ["demo.hello"], "ACTIVE")


# --- worker -----------------------------------------------------------------------------------------------------


def test_drain_runs_what_is_due_and_leaves_the_rest(call: Call, db: Db) -> None:
    due = make_jobs(db, 20, kind="demo.hello", queue="demo")
    slow = make_job(db, kind="demo.sleep", payload={"seconds": 0.3})
    failing = make_job(db, kind="demo.fail")
    later, unknown = make_job(db, kind="demo.hello", next_retry_at=hence(hours=1)), make_job(db, kind="unknown")
    assert call("worker", "--drain").code == 0
    found = statuses(db)
    assert {found[job_id] for job_id in [*due, slow]} == {"COMPLETED"}
    assert [found[job_id] for job_id in (failing, later, unknown)] == ["RETRY_WAIT", "PENDING", "PENDING"]
    assert views.workers(db) == []


def test_drain_keeps_to_its_queues(call: Call, db: Db) -> None:
    ours, theirs = (make_job(db, kind="demo.hello", queue=queue) for queue in ("a", "b"))
    assert call("worker", "--drain", "--queues", "a,c", "--name", "ana").code == 0
    assert statuses(db) == {ours: "COMPLETED", theirs: "PENDING"}
    assert db.execute("SELECT name, queues, reason FROM job_worker_exit").fetchall() == [("ana", ["a", "c"], "done")]


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ("worker --processors tests.jobs.kinds.plain", {}),
        ("worker", {"SNAPAPP_PROCESSORS": "tests.jobs.kinds.plain", "SNAPAPP_PRODUCT": "false"}),
    ],
)
def test_a_worker_without_the_product_knows_only_the_kinds_it_is_told(
    run: Callable[..., Running], url: str, db: Db, typed: str, settings: dict[str, str]
) -> None:
    job = make_job(db, kind="plain.greet", payload={"name": "Ana"})
    worker = run(*typed.split(), SNAPAPP_DATABASE_URL=url, **settings)
    until_status(db, job, "COMPLETED")
    assert [one.kinds for one in views.workers(db)] == [["plain.apart", "plain.greet"]]
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0


def test_drain_takes_over_from_a_dead_worker(call: Call, db: Db) -> None:
    lost = make_job(db, "RUNNING", kind="demo.hello", claimed_by="dead", max_attempts=3)
    dead = Member("dead", "dead", "box", processes.machine(), 2**22 + 1, 1, [], ["demo.hello"], 1)
    roster.beat(db, dead, Report(), lives_for=timedelta(minutes=1))
    assert call("worker", "--drain").code == 0
    assert row(db, lost).status == "COMPLETED"


def test_once_runs_one_batch_and_no_more(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_WORKER_BATCH_SIZE", "2")
    make_jobs(db, 10, kind="demo.hello")
    for done in (2, 4):
        assert call("worker", "--once").code == 0
        assert sorted(statuses(db).values()) == ["COMPLETED"] * done + ["PENDING"] * (10 - done)
    assert db.execute("SELECT sum(attempt_count) FROM snap_processing_job").fetchone() == (4,)


def test_once_with_an_empty_queue_ends(call: Call, db: Db) -> None:
    make_job(db, kind="unknown")
    assert call("worker", "--once").code == 0


@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_worker_finishes_what_it_runs(
    url: str, db: Db, run: Callable[..., Running], stop: signal.Signals
) -> None:
    worker = run("worker", SNAPAPP_DATABASE_URL=url)
    job_id, later = (make_job(db, kind="demo.sleep", payload={"seconds": 1}, **more) for more in ({}, LATER))
    until_status(db, job_id, "RUNNING")
    worker.signal(stop)
    assert worker.end() == 0
    assert (row(db, job_id).status, row(db, later).status) == ("COMPLETED", "PENDING")
    assert views.workers(db) == []
    assert worker.family() == []


LATER: dict[str, Any] = {"next_retry_at": hence(hours=1)}


@pytest.mark.parametrize("kind", ["demo.sleep", "demo.crunch"])
def test_a_second_signal_ends_a_worker_now_and_hands_its_job_back(
    url: str, db: Db, run: Callable[..., Running], kind: str
) -> None:
    quick = {"SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS": "500"}
    worker = run("worker", SNAPAPP_DATABASE_URL=url, SNAPAPP_SHUTDOWN_GRACE_MS="3600000", **quick)
    job_id = make_job(db, kind=kind, payload={"seconds": 3600})
    until_status(db, job_id, "RUNNING")
    until(lambda: row(db, job_id).progress is not None)
    worker.signal(signal.SIGINT)
    worker.hear("1 job runs and may finish within 3600 s. A second signal (Ctrl-C) ends them now")
    # two at once reach the threads of a process in any order, so not before the first was heard
    until(lambda: db.execute("SELECT status FROM job_worker").fetchall() == [("DRAINING",)])
    worker.signal(signal.SIGTERM)
    assert worker.end() == 128 + signal.SIGTERM
    assert (row(db, job_id).status, row(db, job_id).attempt_count, row(db, job_id).interruptions) == ("PENDING", 0, 1)
    assert worker.family() == []


def test_the_grace_ends_a_worker_that_would_go_on(url: str, db: Db, run: Callable[..., Running]) -> None:
    worker = run("worker", SNAPAPP_DATABASE_URL=url, SNAPAPP_SHUTDOWN_GRACE_MS="500")
    job_id = make_job(db, kind="demo.sleep", payload={"seconds": 3600})
    until_status(db, job_id, "RUNNING")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert (row(db, job_id).status, row(db, job_id).attempt_count) == ("PENDING", 0)


def test_a_worker_waits_for_a_database_that_is_away_at_its_start(
    server: Postgres, db: Db, run: Callable[..., Running]
) -> None:
    worker = run("worker", SNAPAPP_DATABASE_URL=server.url_of("not_yet"))
    worker.hear("The database cannot be reached, trying again until it can")
    admin = psycopg.connect(server.url_of("postgres"), autocommit=True)
    admin.execute("CREATE DATABASE not_yet TEMPLATE migrated")
    worker.hear("worker.started")
    with connect(server.url_of("not_yet"), name="test") as there:
        job_id = make_job(there, kind="demo.hello")
        until_status(there, job_id, "COMPLETED")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    admin.execute("DROP DATABASE not_yet WITH (FORCE)")
    admin.close()


def test_a_worker_that_still_waits_for_its_database_stops_at_once(run: Callable[..., Running]) -> None:
    worker = run("worker", SNAPAPP_DATABASE_URL=NOWHERE)
    worker.hear("trying again")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert "Traceback" not in worker.said()


# --- serve ------------------------------------------------------------------------------------------------------


def test_serve_brings_the_database_and_leaves_no_process_behind(tmp_path: Path, run: Callable[..., Running]) -> None:
    """All of it on one new cluster, because making one takes seconds."""
    data_dir = tmp_path / "var"
    settings = {"SNAPAPP_DATA_DIR": str(data_dir)}
    serve = run("serve", **settings)
    serve.hear("worker.started")
    assert postmaster.find(data_dir / "postgres") is not None
    for kind in ("demo.hello", "demo.crunch", "demo.sleep"):
        adding = run("jobs", "enqueue", kind, '{"seconds": 0.1}', **settings)
        assert adding.end() == 0, adding.said()
    draining = run("worker", "--drain", **settings)
    assert draining.end() == 0, draining.said()
    beside = run("worker", **settings)
    beside.hear("worker.started")

    serve.signal(signal.SIGINT)
    assert serve.end() == 0
    assert postmaster.find(data_dir / "postgres") is not None  # the worker still uses it
    listing = run("jobs", "list", "--json", **settings)
    assert listing.end() == 0, listing.said()
    beside.signal(signal.SIGTERM)
    assert beside.end() == 0
    assert beside.family() == serve.family() == []
    assert postmaster.find(data_dir / "postgres") is None
    assert "Traceback" not in serve.said() + beside.said()
    assert _with_argument(str(data_dir)) == []


def _with_argument(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_serve_migrates_in_dev(empty_url: str, run: Callable[..., Running]) -> None:
    serve = run("serve", SNAPAPP_DATABASE_URL=empty_url)
    serve.hear("worker.started")
    serve.signal(signal.SIGTERM)
    assert serve.end() == 0


def test_with_the_worker_off_serve_claims_nothing_and_another_worker_takes_over(
    url: str, db: Db, run: Callable[..., Running]
) -> None:
    serve = run("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false")
    serve.hear("The worker is off")
    ids = make_jobs(db, 20, kind="demo.hello")
    assert run("worker", "--drain", SNAPAPP_DATABASE_URL=url).end() == 0
    assert {row(db, job_id).status for job_id in ids} == {"COMPLETED"}
    serve.signal(signal.SIGINT)
    assert serve.end() == 0
    assert db.execute("SELECT reason, jobs_completed FROM job_worker_exit").fetchall() == [("done", 20)]


def test_a_port_that_is_taken_is_said_with_the_one_that_is_used_instead(url: str, run: Callable[..., Running]) -> None:
    """Only where nobody chose it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # or somebody else has it
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        serve = run("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false")
        serve.hear("Serving http://localhost:80")
        [port] = re.findall(r"Port 8000 is taken, so (80\d\d)\.", serve.said())
        assert f"Serving http://localhost:{port}/" in serve.said()
        serve.signal(signal.SIGINT)
        assert serve.end() == 0
        chosen = run("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_PORT="8000")
        assert chosen.end() == 1
        assert "port 8000 in use. Set SNAPAPP_PORT" in chosen.said()


def test_with_reload_a_change_is_in_force_a_moment_later(url: str, run: Callable[..., Running], tmp_path: Path) -> None:
    module, kind = tmp_path / "mine.py", "@processor('{}')\ndef {}(job): ...\n"
    module.write_text("from snapapp.jobs import processor\n" + kind.format("mine.one", "one"))
    settings = {
        "SNAPAPP_DATABASE_URL": url,
        "SNAPAPP_PROCESSORS": "mine",
        "SNAPAPP_PORT": "0",
        "PYTHONPATH": str(tmp_path),
    }
    serve = run("serve", "--reload", **settings)
    serve.hear('"mine.one"')
    module.write_text(module.read_text() + "nonsense(")
    serve.hear("mine.py was changed: starting anew.")
    serve.hear("Waiting for a file to be changed.")
    module.write_text(module.read_text().replace("nonsense(", kind.format("mine.two", "two")))
    serve.hear('"mine.two"')
    serve.signal(signal.SIGTERM)
    assert serve.end() == 0
    assert serve.family() == []


def test_the_banner_is_for_a_terminal(url: str, run: Callable[..., Running]) -> None:
    serve = run("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_LOG_FORMAT="json")
    serve.hear("worker.started")
    serve.signal(signal.SIGTERM)
    assert serve.end() == 0
    lines = [json.loads(line) for line in serve.said().splitlines()]
    worker = [line for line in lines if line["message"].startswith("worker.")]
    assert [line["message"] for line in worker] == ["worker.started", "worker.stopping", "worker.closed"]
    assert [line.get("reason") for line in worker] == [None, "SIGTERM", "SIGTERM"]


def test_on_a_terminal_serve_greets_and_ctrl_c_stops_it(url: str, tmp_path: Path) -> None:
    terminal, ours = os.openpty()
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    process = subprocess.Popen(
        [sys.executable, "-m", "snapapp", "serve"],
        stdin=ours,
        stdout=ours,
        stderr=subprocess.DEVNULL,
        env=settings,
        start_new_session=True,
    )
    os.close(ours)
    said = b""
    while b"watch 1" not in said:
        said += os.read(terminal, 4096)
    assert b"jobs enqueue demo.hello" in said
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=WITHIN) == 0
    os.close(terminal)


def test_settings_of_a_worker_can_be_typed(url: str, db: Db, run: Callable[..., Running]) -> None:
    worker = run("worker", "--queues", "a,b", "--concurrency", "7", "--name", "ana", SNAPAPP_DATABASE_URL=url)
    until(lambda: bool(views.workers(db)))
    [member] = views.workers(db)
    assert (member.name, member.queues, member.slots) == ("ana", ["a", "b"], 7 + 100 + 2)
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
