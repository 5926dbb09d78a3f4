"""A cluster as people type it, and as they mistype it."""

import sys

import pytest

from snapapp.jobs import compute
from tests.commands import Call
from tests.running import free_port


def test_a_node_that_is_told_of_no_scheduler_asks_for_one(bare_call: Call) -> None:
    answer = bare_call("compute", "node")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("snapapp: Where is the scheduler? Type `snapapp compute node dask://host:8786`")


@pytest.mark.parametrize("typed", ["compute node dask://127.0.0.1:1", "worker --once"])
def test_without_dask_it_is_said_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setenv("SNAPAPP_COMPUTE", "dask://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in [name for name in sys.modules if name.startswith("snapapp.jobs.compute.")]:  # of an earlier test
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(compute, name.rpartition(".")[2])
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (1, "")
    assert "distributed is not installed, which a cluster takes: type `pip install 'snapapp[compute]'`." in answer.err


def test_an_address_that_is_none_is_refused_with_every_other_mistake(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_COMPUTE", "http://scheduler:8786")
    monkeypatch.setenv("SNAPAPP_PORT", "x")
    answer = call("jobs", "list")
    assert answer.code == 1
    assert "SNAPAPP_COMPUTE" in answer.err
    assert "is not dask://host:port or dask+tls://host:port" in answer.err
    assert "SNAPAPP_PORT" in answer.err


def test_a_scheduler_that_is_away_is_said_before_a_deploy(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'snapapp[compute]'")
    monkeypatch.setenv("SNAPAPP_COMPUTE", f"dask://127.0.0.1:{free_port()}")
    assert "The cluster cannot be reached: no scheduler answers at dask://127.0.0.1:" in call("check-deploy").out
    answer = call("doctor", "--only", "compute")
    assert answer.code == 1
    assert "The cluster cannot be reached: no scheduler answers at dask://127.0.0.1:" in answer.out
