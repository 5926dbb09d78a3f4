"""`snapapp psql`, in a terminal and without one."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from snapapp.errors import PostgresError
from snapapp.jobs.os.signals import handled
from snapapp.postgres import psql_argv, run_psql
from snapapp.postgres import start as start_server
from tests.postgres.clusters import ENVIRONMENT


def test_psql_answers(data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with start_server(data_dir, create=False) as started:
        assert run_psql(started.url, ["-Atc", "SELECT 6 * 7"]) == 0
        assert run_psql(started.url, ["-c", "SELECT nonsense"]) == 1
        with handled(signal.SIG_IGN, signal.SIGHUP):  # as nohup does: a statement that takes hours is left to run
            assert run_psql(started.url, ["-c", r"\! kill -HUP $PPID", "-Atc", "SELECT 43"]) == 0
    assert capfd.readouterr().out == "42\n43\n"


def test_psql_talks_in_a_terminal(data_dir: Path) -> None:
    script = "import sys; from snapapp.postgres import run_psql; run_psql(sys.argv[1], ['-X', '-P', 'pager=off'])"
    ours, theirs = pty.openpty()
    with start_server(data_dir, create=False) as started:
        terminal = ENVIRONMENT | {"TERM": "xterm", "PSQL_HISTORY": os.devnull}
        with subprocess.Popen(
            [sys.executable, "-c", script, started.url], stdin=theirs, stdout=theirs, stderr=theirs, env=terminal
        ) as talking:
            os.close(theirs)
            heard = hear_until(ours, "snapapp=# ")
            os.write(ours, b"SELECT 6 * 7 AS answer;\n")
            heard = hear_until(ours, "(1 row)")
            os.write(ours, b"\\q\n")
            talking.wait(timeout=20)
    os.close(ours)
    assert "42" in heard


def hear_until(terminal: int, word: str) -> str:
    heard = ""
    while word not in heard:
        heard += os.read(terminal, 1000).decode()
    return heard


def test_psql_hides_the_password_of_a_foreign_database() -> None:
    argv = psql_argv("postgresql+psycopg://me:secret@db.example:6432/theirs?sslmode=require")
    assert "secret" not in " ".join(argv)
    assert set(argv[1].split()) == {"user=me", "host=db.example", "port=6432", "dbname=theirs", "sslmode=require"}


def test_the_password_of_a_clients_key_is_handed_over_in_a_file(
    data_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """libpq has no variable for it. Everybody on the machine can read psql's arguments."""
    with start_server(data_dir, create=False) as started:
        assert run_psql(started.url + "&sslpassword=a-secret", ["-c", r"\! ps -o args= $PPID; cat $PGSERVICEFILE"]) == 0
    assert re.fullmatch(r"\S+psql (?!.*secret).+\n\[snapapp\]\nsslpassword=a-secret\n", capfd.readouterr().out)


def test_psql_names_a_url_that_is_none() -> None:
    with pytest.raises(PostgresError, match="cannot use the database URL"):
        psql_argv("postgresql://host/?nonsense=1")
