"""The alert rules and the dashboard ask for numbers that a live server has, by labels that those have."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.api.conftest import served
from tests.docs.monitoring_page import families
from tests.exposition import Exposition, parse
from tests.factory import Db, enqueue
from tests.jobs.working import until, until_status
from tests.ops import alert_series

FOLDER = ROOT / "ops" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = json.loads((FOLDER / "grafana.json").read_text())["panels"]
EXPRESSIONS = [str(rule["expr"]) for rule in RULES] + [it["expr"] for its in PANELS for it in its["targets"]]


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:snapapp|process)_\w+", expression))


def family(name: str) -> str:
    bare = re.sub("_(bucket|count|sum)$", "", name)
    return bare if bare in families() else name


def labels(expression: str) -> set[str]:
    by = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")}
    return (by | set(re.findall(r"(\w+)=~?\"", expression))) - {"instance", "job"}  # Prometheus adds these


def labels_of(found: Exposition, name: str) -> list[set[str]]:
    return [{label for label, _ in its} for sample, its in found.samples if sample == name]


def test_every_expression_names_numbers_and_labels_of_a_live_server(url: str, tmp_path: Path, db: Db) -> None:
    """M63: alerts."""
    with served(url, tmp_path, worker_enabled=True) as client:
        until_status(db, enqueue(db, "demo.hello", {"name": "Ana"}, queue="demo") or 0, "COMPLETED")
        enqueue(db, "unknown", queue="mail")
        until(lambda: "snapapp_job_run_seconds_bucket" in client.get("/metrics").text)
        client.get("/internal/queues")
        found = parse(client.get("/metrics").text)
    live = found.names()
    assert len(live) > 40
    for expression in EXPRESSIONS:
        assert named(expression), expression
        for part in re.split(r"\bor\b", expression):
            for name in named(part):
                assert name in live or family(name) in families(), f"{name} in {part}"
                for those in labels_of(found, name):
                    assert labels(part) <= those, f"{name} has {those}: {part}"


def test_a_rule_says_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "action"} == rule["annotations"].keys()
        of_series = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) - {"instance"}
        assert of_series <= labels(rule["expr"]), rule["alert"]


def test_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for its in PANELS:
        place = its["gridPos"]
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in columns for y in lines}
        assert not cells & taken, its["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({its["id"] for its in PANELS}) == len(PANELS)


@pytest.fixture
def promtool() -> str:
    return shutil.which("promtool") or pytest.skip("promtool is not installed")


def judged(*command: str, given: str = "") -> str:
    said = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout + said.stderr


def test_prometheus_takes_the_rules(promtool: str) -> None:
    assert f"{len(RULES)} rules found" in judged(promtool, "check", "rules", str(FOLDER / "alerts.yml"))


@pytest.mark.at_length  # every expression finds its numbers in every run, below
def test_each_rule_fires_at_what_it_is_for_and_not_close_by(promtool: str, tmp_path: Path) -> None:
    assert [*dict.fromkeys(case.alert for case in alert_series.CASES)] == [rule["alert"] for rule in RULES]
    asked = tmp_path / "asked.yml"
    asked.write_text(yaml.safe_dump(alert_series.document(str(FOLDER / "alerts.yml"))))
    judged(promtool, "test", "rules", str(asked))


def test_prometheus_takes_the_names_units_and_helps_of_a_live_server(
    promtool: str, url: str, tmp_path: Path, db: Db
) -> None:
    with served(url, tmp_path, worker_enabled=True) as client:
        until_status(db, enqueue(db, "demo.hello", {"name": "Ana"}, queue="demo") or 0, "COMPLETED")
        until(lambda: "snapapp_job_run_seconds_bucket" in client.get("/metrics").text)
        told = client.get("/metrics").text
    assert judged(promtool, "check", "metrics", given=told) == ""
