"""The bench measures; these tests only see that it does, with numbers too small to mean anything."""

import argparse
import json
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from time import sleep

import psycopg
import pytest

from snapapp import bench
from snapapp.bench import plan, processes, report
from snapapp.bench.claims import pinning
from snapapp.bench.report import Measurement, Target
from snapapp.bench.web import pages
from tests.databases import Postgres
from tests.factory import Db

TINY = {
    "runs": 1,
    "jobs": 200,
    "singles": 20,
    "pickups": 10,
    "idle_for": timedelta(milliseconds=200),
    "deep": 2_000,
    "lanes": 150,
    "heads": 40,
    "crowd": 50,
    "naps": 200,
    "steady_for": timedelta(seconds=1),
    "claims": 2,
    "pinned": 400,
    "crowd_of_videos": 10,
    "crowd_of_snaps": 200,
    "page_asks": 1,
    "batches": (100,),
    "processes": (2,),
}


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(given)


@pytest.mark.at_length  # the next ones run those with pages and peers, and the command one, in every run
def test_every_scenario_runs_and_leaves_no_database_behind(server: Postgres) -> None:
    url = server.url_of("postgres")
    scenarios = {*plan.SCENARIOS} - {"versus", "web"}
    found = bench.run(url, bench.Plan(**TINY, scenarios=tuple(scenarios)))  # type: ignore[arg-type]
    assert found.failures == []
    assert {one.name.split(".")[0] for one in found.measurements} == scenarios
    assert all(one.ours for one in found.measurements)
    assert json.loads(json.dumps(found.as_json()))["environment"]["settings"]["fsync"] == "off"
    with psycopg.connect(url) as db:
        left = db.execute("SELECT datname FROM pg_database WHERE starts_with(datname, 'snapapp_bench')")
        assert left.fetchall() == []


@pytest.mark.at_length  # web/ and api/ ask for every page in every run
def test_every_page_of_a_tenant_who_has_much_is_asked_for(server: Postgres) -> None:
    """What does not answer 200 is no measurement; how long each may take is for the bench itself to say."""
    with bench.server.BenchServer(server.url_of("postgres")) as bench_server:
        found = pages.measure(bench_server, bench.Plan(**TINY), lambda _: None)  # type: ignore[arg-type]
    assert {one.name.removeprefix("web.page.") for one in found} >= {"/", "/snaps", "/snaps/subject", "snaps, deep"}
    assert all((len(one.ours), one.target is not None) == (1, True) for one in found)


def test_an_idle_transaction_outlasts_the_patience_of_its_server(url: str, db: Db) -> None:
    name = db.info.dbname
    db.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = 100")
    with pinning(url):
        sleep(0.5)


@pytest.mark.parametrize("peer", plan.PEERS)
def test_a_peer_fills_and_drains_the_same_queue(server: Postgres, peer: str) -> None:
    if not find_spec(peer):
        pytest.skip("type: make peers")
    asked = TINY | {"scenarios": ("versus",), "versus": (peer,), "processes": (1,)}
    found = bench.run(server.url_of("postgres"), bench.Plan(**asked))  # type: ignore[arg-type]
    assert found.failures == []
    assert {one.name for one in found.measurements} >= {f"versus.{peer}.1", f"versus.{peer}.enqueue"}


def test_the_command_prints_json_and_nothing_else(server: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    """Q50: what the queue itself can be held against."""
    given = arguments("--json", "--quick", "--runs", "1", "--jobs", "100", "--only", "enqueue")
    assert bench.command(given, server.url_of("postgres")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["environment"]["plan"]["jobs"] == 100
    assert {one["name"] for one in printed["measurements"]} >= {"enqueue.sqlalchemy", "enqueue.psycopg", "enqueue.many"}


def test_what_it_cannot_measure_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.command(arguments("--only", "drain,nonsense"), "postgresql://nowhere") == 2
    assert "nonsense" in capsys.readouterr().err
    monkeypatch.setattr("snapapp.bench.drain.find_spec", lambda _: None)
    assert bench.command(arguments("--versus", "pgqueuer"), "postgresql://nowhere") == 2
    assert "pgqueuer is not installed; type: make peers" in capsys.readouterr().err


def test_a_peer_is_refused_where_only_the_package_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("snapapp.bench.drain._ROOT", tmp_path)
    assert bench.command(arguments("--versus", "pgqueuer"), "postgresql://nowhere") == 2
    said = capsys.readouterr().err
    assert "source tree only: tests/labs/peers/pgqueuer.py is not in the installed package" in said


def test_a_process_that_dies_is_reported_with_its_last_words() -> None:
    with (
        processes.BenchProcess("worker", url="postgresql://127.0.0.1:1/nothing", batch="many") as worker,
        pytest.raises(processes.BenchProcessFailed, match=r"(?s)worker ended without a report.*TypeError"),
    ):
        worker.receive(within=30)


def test_a_ratio_is_taken_run_by_run() -> None:
    line = Measurement(
        name="drain",
        what="drain",
        unit="jobs/s",
        ours=[90, 10, 80],
        beside=[100, 10, 100],
        target=Target("ratio", "at least", 0.9),
    )
    assert line.ratio == 0.9
    assert line.is_met
    assert line.as_json()["median"] == 80


def test_a_percentile_is_one_of_the_samples() -> None:
    assert report.percentile([4, 1, 3, 2], 50) == 2
    assert report.percentile(range(1, 101), 99) == 99
    assert report.percentile([7], 99) == 7
