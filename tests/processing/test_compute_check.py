"""What the doctor says of a cluster, and how often it goes and looks."""

from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'snapapp[compute]'")

from snapapp.jobs.doctor.finding import ExaminedDatabase
from snapapp.processing import compute_check
from snapapp.processing.checks import facts
from snapapp.processing.compute_check import ComputeCheck
from snapapp.settings.table import Settings
from tests.jobs.compute.clusters import Cluster

NOBODY = cast(ExaminedDatabase, None)  # it asks no database


def test_a_cluster_that_is_well_is_looked_at_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(tmp_path) as cluster:
        check = ComputeCheck(cluster.typed)
        assert said(check) == ["COMPUTE_AWAY"]
        cluster.start_scheduler()
        cluster.start_node("first")
        cluster.until_nodes(1)
        assert said(check) == ["COMPUTE"]  # at once: only what is well is remembered
        assert cluster.scheduler
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        assert said(check) == ["COMPUTE"]
        monkeypatch.setattr(compute_check, "_GOOD_FOR", 0.0)
        assert said(check) == ["COMPUTE_AWAY"]


def test_whoever_asks_in_a_process_asks_the_same_check() -> None:
    settings = Settings(compute="dask://127.0.0.1:1")
    first = facts(settings, "postgresql:///none").checks["compute"]
    assert facts(settings, "postgresql:///none").checks["compute"] is first


def said(check: ComputeCheck) -> list[str]:
    return [each.id for each in check(NOBODY)]
