"""In LOG_FORMAT=json every line is one JSON object, whoever wrote it, and says which request it belongs to."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snapapp.logs import JsonLines
from tests.factory import Db, make_job
from tests.jobs.working import until_status
from tests.running import Running, Served

Start = Callable[..., Any]

# An application of a stranger around ours: one route that logs, one that fails, and a library that warns.
PROBE = """
import logging, warnings
from snapapp.app import app

@app.get("/probe")
def probe() -> str:
    logging.getLogger("another.package").warning("said %s", "this")
    warnings.warn("an old way")
    return "done"

@app.get("/broken")
def broken() -> str:
    raise RuntimeError("two\\nlines")
"""


class ServedByUvicorn(Served):
    """Under uvicorn's own command, which sets up logging of its own first."""

    announced = r"Uvicorn running on http://127\.0\.0\.1:(\d+)"

    def __init__(self, folder: Path, **settings: str) -> None:
        (folder / "probe.py").write_text(PROBE)
        self.module = ("uvicorn",)
        self.command = ("probe:app", "--port", "0", "--app-dir", str(folder))
        super().__init__(folder, **settings)


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    started: list[Running] = []

    def begin(kind: Callable[..., Running], *arguments: str) -> Running:
        settings = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_LOG_FORMAT": "json", "PYTHONWARNINGS": "default"}
        started.append(kind(tmp_path, *arguments, **settings))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait()


def lines(running: Running) -> list[dict[str, Any]]:
    """All that the process said; each line must be an object with the promised fields."""
    found = [json.loads(line, parse_constant=pytest.fail) for line in running.said().splitlines()]
    for line in found:
        assert {"timestamp", "level", "logger", "message"} <= line.keys()
    return found


def ended(running: Running) -> list[dict[str, Any]]:
    running.process.terminate()
    running.end()
    return lines(running)


def work_both_ways(db: Db) -> int:
    """A job that succeeds and one that fails; returns the id of the second."""
    until_status(db, make_job(db, kind="demo.hello", payload={"name": "Ana"}), "COMPLETED")
    failing = make_job(db, kind="demo.fail", max_attempts=1, request_id="r-9")
    until_status(db, failing, "FAILED")
    return failing


@pytest.mark.at_length  # every line of a worker is, in every run
@pytest.mark.parametrize("kind", [Served, ServedByUvicorn])
def test_every_line_of_a_serving_process_is_json(db: Db, start: Start, kind: type[Served]) -> None:
    """Q40, Q48: of the web, the worker, uvicorn and libraries."""
    served = start(kind).until_up()
    failing = work_both_ways(db)
    found = ended(served)
    assert {"uvicorn.error", "snapapp.jobs"} <= {line["logger"] for line in found}
    [failed] = [line for line in found if line["message"] == "job.failed"]
    assert (failed["jobId"], failed["requestId"], failed["level"]) == (failing, "r-9", "ERROR")


def test_every_line_of_a_worker_is_json(db: Db, start: Start) -> None:
    """Q40, R3."""
    worker = start(Running, "worker")
    failing = work_both_ways(db)
    assert failing in [line.get("jobId") for line in ended(worker)]


def test_a_line_says_which_request_it_belongs_to(start: Start) -> None:
    """Q48: lines of routes, of libraries that they call, of what failed; and no line that belongs to none."""
    served = start(ServedByUvicorn).until_up()
    assert served.ask("/probe", **{"X-Request-Id": "r-1"}).headers["x-request-id"] == "r-1"
    assert served.ask("/broken", **{"X-Request-Id": "r-2"}).status == 500
    found = ended(served)
    belonging = {(line["logger"], line.get("requestId")) for line in found}
    assert {
        ("another.package", "r-1"),
        ("py.warnings", "r-1"),
        ("snapapp.api.http.requests.middleware", "r-2"),
    } <= belonging
    assert {("uvicorn.access", "r-1"), ("uvicorn.access", "r-2")} <= belonging
    [failure] = [line for line in found if line.get("requestId") == "r-2" and "traceback" in line]
    assert "two\nlines" in failure["traceback"]
    assert {line.get("requestId") for line in found if line["logger"] == "snapapp.jobs"} == {None}


def test_no_line_of_uvicorns_command_has_the_secret_of_a_link(start: Start) -> None:
    served = start(ServedByUvicorn).until_up()
    for path in ("/sign-in/default/secret-7?lang=pt", "/public/snaps/secret-7", "/media/secret-7/frame_00001.jpg"):
        assert served.ask(path).status in (401, 403, 404)
    told = [line["message"] for line in ended(served)]
    assert [path for path in ("/sign-in/***", "/public/snaps/***", "/media/***/") if path not in str(told)] == []
    assert "secret-7" not in str(told)


class Hostile:
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("%d jobs", ("many",), {}),
        ("%s and %s", ("one",), {}),
        ("said", (), {"share": float("nan"), "most": float("inf")}),
        ("said", (), {"deep": {"deeper": [float("-inf")]}}),
        ("said", (), {"who": Hostile()}),
        ("said", (), {("a", "b"): 1}),
        ("NaN and Infinity", (), {}),
        ("a lone \ud800 surrogate, a NUL \0 and\na line", (), {}),
        (Hostile(), (), {}),
    ],
)
def test_whatever_is_logged_is_one_line_of_json(message: object, arguments: tuple[Any, ...], fields: Any) -> None:
    record = logging.LogRecord("some", logging.INFO, "", 0, message, arguments, None)
    record.fields = fields
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail)["logger"] == "some"
