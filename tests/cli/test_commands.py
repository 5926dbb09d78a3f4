"""What can be typed and what it says, on a real database: its help, its mistakes, the settings."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from snapapp.cli import commands
from snapapp.cli.processes import worker
from snapapp.jobs import schema
from snapapp.jobs.rows.people import lists
from tests import ROOT
from tests.commands import NOWHERE, WITHIN, Answer, Call
from tests.databases import Postgres
from tests.factory import Db, scalar
from tests.running import Running

COMMANDS = [
    "serve",
    "worker",
    "supervisor",
    "compute",
    "migrate",
    "psql",
    "config",
    "jobs",
    "queues",
    "workers",
    "schedules",
    "limits",
    "retention",
    "fleet",
    "top",
    "tenants",
    "operators",
    "demo",
    "import-legacy",
    "backup",
    "restore",
    "drill",
    "doctor",
    "check-deploy",
    "kinds",
    "simulate",
    "bench",
    "completion",
    "version",
]
COMMANDS_PAGE = ROOT / "docs" / "commands.md"

# --- what can be typed ------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("typed", ["tenants", "tenants rotate-token", "operators", "operators add", "backup", "bench"])
def test_help_is_a_sentence_in_which_names_are_as_they_are(bare_call: Call, typed: str) -> None:
    said = bare_call(*typed.split(), "--help").out.split("\n\n")[1]
    assert re.fullmatch(r"[A-Z].*\.", said, re.DOTALL)
    assert "snapapp_" not in said


def test_the_documentation_names_every_command_in_the_order_of_help(call: Call) -> None:
    rows = re.findall(r"^\| `snapapp ([a-z-]+)(?: ([a-z|\\-]+))?", COMMANDS_PAGE.read_text(), re.MULTILINE)
    assert [command for command, _ in rows] == COMMANDS
    for command, acts in rows:
        if acts:
            assert re.findall(r"^    ([a-z-]+)", call(command, "--help").out, re.MULTILINE) == acts.split("\\|")


@pytest.mark.leaves_nothing
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
        "worker --queues ",  # $QUEUES, which nobody has set, is not every queue
        "worker --queues ,",
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
        "jobs now",
        "jobs now x",
        "jobs now --waiting",
        "jobs now 1 --kind test",
        "jobs replay",
        "jobs replay 1 --ended",
        "jobs replay --status failed",
        "jobs discard --failed",
        "queues pause",
        "compute",
        "compute node tcp://scheduler:8786",
        "compute node dask://scheduler",
        "compute node dask://scheduler:8786 --cores 0",
        "compute node dask://scheduler:8786 --memory-mb 1.5",
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


@pytest.mark.parametrize(
    "family", ["jobs", "queues", "workers", "schedules", "limits", "retention", "fleet", "tenants"]
)
def test_a_family_alone_lists(call: Call, family: str) -> None:
    assert call(family) == call(family, "list")
    assert call(family, "--json").json is not None


def test_a_list_of_jobs_loads_no_more_than_it_needs(url: str) -> None:
    script = "import sys; from snapapp.__main__ import main; main(['jobs', 'list']); print(*sys.modules)"
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=settings)
    loaded = set(said.stdout.split())
    assert "snapapp.jobs.rows.people.lists" in loaded
    heavy = {"sqlalchemy", "alembic", "fastapi", "pydantic", "rich", "snapapp.jobs.cli.fleet"}
    product = {f"snapapp.{name}" for name in ("api", "web", "domain", "processing", "media", "storage", "demo")}
    assert loaded & (heavy | product | {"snapapp.jobs.worker", "snapapp.jobs.doctor"}) == set()


def test_what_needs_no_sqlalchemy_does_not_load_it() -> None:
    """It takes half of the time that `config`, `psql` and `kinds` take to begin."""
    script = "import sys; from snapapp.__main__ import main; main(['config']); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"sqlalchemy", "alembic", "fastapi", "rich"} & set(said.split())


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


@pytest.mark.parametrize("under_nohup", [True, False])
def test_the_end_of_the_terminal_ends_a_command_but_not_one_under_nohup(
    bare_call: Call, monkeypatch: pytest.MonkeyPatch, under_nohup: bool
) -> None:
    """As Ctrl-C does: an embedded server that the command has started is stopped."""
    monkeypatch.setattr(commands, "config", lambda *_: signal.raise_signal(signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if under_nohup else signal.SIG_DFL)
    try:
        assert bare_call("config").code == (None if under_nohup else 130)
    finally:
        signal.signal(signal.SIGHUP, before)


# --- errors that people can answer ------------------------------------------------------------------------------------


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
    monkeypatch.setattr(worker, "_PATIENCE", timedelta(0))
    answer = bare_call(*typed.split())
    assert (answer.code, answer.out) == (1, "")
    [line] = [line for line in answer.err.splitlines() if line.startswith("snapapp: ")]
    assert line.startswith("snapapp: The database cannot be reached: ")
    assert "Traceback" not in answer.err


def test_with_debug_an_error_comes_with_its_traceback(bare_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("SNAPAPP_LOG_LEVEL", "DEBUG")
    answer = bare_call("jobs", "list")
    assert answer.code == 1
    assert answer.err.startswith("Traceback ")
    assert "psycopg.OperationalError: " in answer.err


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
@pytest.mark.parametrize("typed", ["doctor", "check-deploy"])
def test_what_cannot_look_exits_with_2_whatever_is_logged(
    bare_call: Call, monkeypatch: pytest.MonkeyPatch, typed: str, level: str
) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("SNAPAPP_LOG_LEVEL", level)
    assert bare_call(typed).code == 2


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


@pytest.mark.parametrize("encoding", ["LATIN1", pytest.param("SQL_ASCII", marks=pytest.mark.at_length)])
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


REST = pytest.mark.at_length  # other commands do the same in every run, and each costs an interpreter


def test_ctrl_c_is_silent(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lists, "jobs", interrupted)
    assert call("jobs", "list") == Answer(130, "", "")


@pytest.mark.parametrize(
    "typed",
    [
        "config",
        "jobs list --json",
        "version",
        *(pytest.param(each, marks=REST) for each in ("config --json", "jobs list", "--help")),
    ],
)
def test_a_reader_that_has_gone_away_is_no_error(url: str, typed: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    command = [sys.executable, "-m", "snapapp", *typed.split()]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=settings, check=False, timeout=WITHIN)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("typed", ["config", "jobs list", "version"])
def test_an_output_that_cannot_be_written_is_said_in_a_line(url: str, typed: str) -> None:
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "snapapp", *typed.split()]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=settings, check=False, timeout=WITHIN)
    assert (ended.returncode, ended.stderr) == (1, b"snapapp: No space left on device\n")


@pytest.mark.parametrize("into", ["/dev/full", "a closed pipe"])
def test_a_token_that_cannot_be_shown_takes_the_place_of_none(url: str, db: Db, into: str) -> None:
    """It is kept nowhere: the old one was dead, and nobody had the new one."""
    token = "SELECT token_hash FROM tenant WHERE code = 'default'"
    old = scalar(db, token)
    if into == "/dev/full":
        output = os.open(into, os.O_WRONLY)
    else:
        reading, output = os.pipe()
        os.close(reading)
    command = [sys.executable, "-m", "snapapp", "tenants", "rotate-token", "default"]
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url, "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=settings, check=False, timeout=WITHIN)
    os.close(output)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"snapapp: It cannot be shown, so nothing was changed: ")
    assert scalar(db, token) == old


ALL = "<&- >&- 2>&-"


@pytest.mark.parametrize(
    ("typed", "code", "closed"),
    [
        *(("jobs list", 0, closed) for closed in (">&-", ALL)),
        *(pytest.param("jobs list", 0, closed, marks=REST) for closed in ("<&-", "2>&-")),
        *(
            pytest.param(*command, closed, marks=() if closed == ALL else REST)
            for command in (("version", 0), ("jobs show 77", 1), ("dance", 2))
            for closed in ("<&-", ">&-", "2>&-", ALL)
        ),
    ],
)
def test_a_stream_that_is_closed_is_no_error(url: str, typed: str, code: int, closed: str) -> None:
    """As crontabs have it."""
    settings = os.environ | {"SNAPAPP_DATABASE_URL": url}
    command = ["/bin/sh", "-c", f'exec "$0" -m snapapp {typed} {closed}', sys.executable]
    ended = subprocess.run(command, capture_output=True, env=settings, check=False, timeout=WITHIN)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (code, False), ended


# --- migrate, config, psql --------------------------------------------------------------------------------------------


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
    url: str, quick: Callable[..., Running], typed: list[str], code: int, out: str
) -> None:
    psql = quick("psql", *typed, SNAPAPP_DATABASE_URL=url)
    assert psql.end() == code
    assert psql.said().startswith(out)
