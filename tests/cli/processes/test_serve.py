"""`snapapp serve` as a process of its own; the first test and that of the terminal begin it as people do."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from snapapp.jobs.rows.people import overviews
from snapapp.postgres import postmaster
from tests.commands import WITHIN
from tests.factory import Db, make_jobs, row
from tests.jobs.working import until
from tests.running import Running


def test_serve_brings_the_database_and_leaves_no_process_behind(
    tmp_path: Path, run: Callable[..., Running], quick: Callable[..., Running]
) -> None:
    """All of it on one new cluster, because making one takes seconds."""
    data_dir = tmp_path / "var"
    settings = {"SNAPAPP_DATA_DIR": str(data_dir), "SNAPAPP_DEMO": "false"}
    serve = run("serve", **settings)
    serve.hear("worker.started")
    assert postmaster.find(data_dir / "postgres") is not None
    for kind in ("demo.hello", "demo.crunch", "demo.sleep"):
        adding = quick("jobs", "enqueue", kind, '{"seconds": 0.1}', **settings)
        assert adding.end() == 0, adding.said()
    draining = quick("worker", "--drain", **settings)
    assert draining.end() == 0, draining.said()
    beside = run("worker", **settings)
    beside.hear("worker.started")

    serve.signal(signal.SIGINT)
    assert serve.end() == 0
    assert postmaster.find(data_dir / "postgres") is not None  # the worker still uses it
    listing = quick("jobs", "list", "--json", **settings)
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


def test_serve_migrates_in_dev(empty_url: str, quick: Callable[..., Running]) -> None:
    serve = quick("serve", SNAPAPP_DATABASE_URL=empty_url, SNAPAPP_DEMO="false")
    serve.hear("worker.started")
    serve.signal(signal.SIGTERM)
    assert serve.end() == 0


def test_with_the_worker_off_serve_claims_nothing_and_another_worker_takes_over(
    url: str, db: Db, quick: Callable[..., Running]
) -> None:
    serve = quick("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false")
    serve.hear("The worker is off")
    ids = make_jobs(db, 20, kind="demo.hello")
    assert quick("worker", "--drain", SNAPAPP_DATABASE_URL=url).end() == 0
    assert {row(db, job_id).status for job_id in ids} == {"COMPLETED"}
    serve.signal(signal.SIGINT)
    assert serve.end() == 0
    assert db.execute("SELECT reason, jobs_completed FROM job_worker_exit").fetchall() == [("done", 20)]


def test_a_port_that_is_taken_is_said_with_the_one_that_is_used_instead(
    url: str, quick: Callable[..., Running]
) -> None:
    """Only where nobody chose it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # or somebody else has it
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        serve = quick("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false")
        serve.hear("Serving http://localhost:80")
        [port] = re.findall(r"Port 8000 is taken, so (80\d\d)\.", serve.said())
        assert f"Serving http://localhost:{port}/" in serve.said()
        socket.create_connection(("127.0.0.1", int(port))).close()  # whoever has read the line is not refused
        serve.signal(signal.SIGINT)
        assert serve.end() == 0
        chosen = quick("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_PORT="8000")
        assert chosen.end() == 1
        assert "port 8000 in use. Set SNAPAPP_PORT" in chosen.said()


MINE = "from snapapp.jobs import processor\n\n@processor('{0}')\ndef work(job): ...\n"


@pytest.fixture
def reloading(url: str, run: Callable[..., Running], tmp_path: Path) -> tuple[Running, Path]:
    """`serve --reload` with a module that declares the kind mine.one."""
    module = tmp_path / "mine.py"
    module.write_text(MINE.format("mine.one"))
    settings = {"SNAPAPP_PROCESSORS": "mine", "SNAPAPP_PORT": "0", "SNAPAPP_DEMO": "false", "PYTHONPATH": str(tmp_path)}
    serve = run("serve", "--reload", SNAPAPP_DATABASE_URL=url, **settings)
    serve.hear('"mine.one"')
    return serve, module


def test_with_reload_a_change_is_in_force_a_moment_later(reloading: tuple[Running, Path]) -> None:
    serve, module = reloading
    module.write_text(MINE.format("mine.two"))
    serve.hear("mine.py was changed: starting anew.")
    serve.hear('"mine.two"')
    serve.signal(signal.SIGKILL)
    until(lambda: serve.family() == [])  # else it kept the port, and went on working the queue with old code


@pytest.mark.at_length  # the test above changes a module in every run
def test_with_reload_what_does_not_start_waits_for_the_next_change(reloading: tuple[Running, Path]) -> None:
    serve, module = reloading
    module.write_text("nonsense(")
    serve.hear("Waiting for a file to be changed.")
    module.write_text(MINE.format("mine.two"))
    serve.hear('"mine.two"')
    serve.signal(signal.SIGTERM)
    assert serve.end() == 0
    assert serve.family() == []


def test_the_banner_is_for_a_terminal(url: str, quick: Callable[..., Running]) -> None:
    serve = quick("serve", SNAPAPP_DATABASE_URL=url, SNAPAPP_LOG_FORMAT="json")
    serve.hear("worker.started")
    serve.signal(signal.SIGTERM)
    assert serve.end() == 0
    lines = [json.loads(line) for line in serve.said().splitlines()]
    worker = [line for line in lines if line["message"].startswith("worker.")]
    assert [line["message"] for line in worker] == ["worker.started", "worker.stopping", "worker.closed"]
    assert [line.get("reason") for line in worker] == [None, "SIGTERM", "SIGTERM"]


@pytest.mark.at_length  # the banner is printed below, and serve ends by SIGINT above, in every run
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


def test_settings_of_a_worker_can_be_typed(url: str, db: Db, quick: Callable[..., Running]) -> None:
    worker = quick("worker", "--queues", "a,b", "--concurrency", "7", "--name", "ana", SNAPAPP_DATABASE_URL=url)
    until(lambda: bool(overviews.workers(db)))
    [member] = overviews.workers(db)
    assert (member.name, member.queues, member.slots) == ("ana", ["a", "b"], 7 + 100 + 2)
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
