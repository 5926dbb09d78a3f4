"""`snapapp jobs run`: a job as a document."""

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs.rows.people import audit
from tests.commands import Call, enqueued
from tests.factory import Db, row, statuses

SPEC = """
version = 1
kind = "demo.hello"
queue = "reports"
priority = 5
run_at = 2000-01-31T08:00:00-03:00
concurrency_key = "camera:7"
tenant = "olho"

[payload]
name = "Ana"
at = [1.5, 2]

[limits]
max_attempts = 7
timeout = "10m"

[provenance]
by = "ana"
code_ref = "v1.4.2"
"""


def test_a_document_becomes_a_job_that_says_where_it_comes_from(call: Call, db: Db, tmp_path: Path) -> None:
    """R24: a version, what to run, its limits, its provenance."""
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    made = row(db, enqueued(call("jobs", "run", file)))
    assert (made.kind, made.queue, made.priority, made.tenant) == ("demo.hello", "reports", 5, "olho")
    assert (made.payload, made.concurrency_key) == ({"name": "Ana", "at": [1.5, 2]}, "camera:7")
    assert (made.max_attempts, made.timeout_ms) == (7, 600_000)
    assert made.next_retry_at == datetime(2000, 1, 31, 11, tzinfo=UTC)
    [deed] = audit.deeds(db, subject=f"job {made.id}")
    assert (deed.who, deed.action, deed.jobs) == ("ana", "job.run", 1)
    assert deed.detail.pop("host")
    sha256 = hashlib.sha256(SPEC.encode()).hexdigest()
    assert deed.detail == {"by": "ana", "code_ref": "v1.4.2", "spec": str(file), "sha256": sha256}
    assert "v1.4.2" in call("jobs", "show", made.id).out
    assert call("jobs", "show", made.id, "--json").json["deeds"][0]["detail"]["sha256"] == sha256


def test_its_payload_may_stand_in_a_file_beside_it_and_it_may_be_json(call: Call, db: Db, tmp_path: Path) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "payload.json").write_text('{"name": "ação"}')
    spec = {"version": 1, "kind": "demo.hello", "payload_file": "payload.json", "delay": "2h", "queue": None}
    (folder / "spec.json").write_text(json.dumps(spec))
    made = row(db, enqueued(call("jobs", "run", folder / "spec.json")))
    assert (made.payload, made.queue) == ({"name": "ação"}, "demo")
    assert (made.next_retry_at - made.created_at).total_seconds() == 7200


YAML = """
version: 1
kind: demo.hello
run_at: 2000-01-31T08:00:00-03:00
payload:
  name: ação
  at: [1.5, 2]
limits: {timeout: 10m}
"""


@pytest.mark.parametrize("name", ["spec.yaml", "spec.YML"])
def test_it_may_be_yaml_where_pyyaml_is_installed(
    call: Call, db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """R24."""
    file = tmp_path / name
    file.write_text(YAML, encoding="utf-8")
    made = row(db, enqueued(call("jobs", "run", file)))
    assert (made.kind, made.payload, made.timeout_ms) == ("demo.hello", {"name": "ação", "at": [1.5, 2]}, 600_000)
    assert made.next_retry_at == datetime(2000, 1, 31, 11, tzinfo=UTC)
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "snapapp.jobs.cli.jobs.yaml_document")
    answer = call("jobs", "run", file)
    assert (answer.code, answer.out) == (1, "")
    assert "PyYAML is not installed: pip install snapapp[yaml], or write it in TOML or JSON" in answer.err


def test_a_check_goes_all_the_way_and_leaves_nothing(call: Call, db: Db, tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(SPEC)
    assert call("jobs", "run", file, "--check").out == f"{file} can be run.\n"
    file.write_text(SPEC + "[limits2]\n")
    assert call("jobs", "run", file, "--check").code == 1
    assert (statuses(db), audit.deeds(db)) == ({}, [])


def test_a_job_that_is_followed_is_shown_to_its_end(call: Call, db: Db, tmp_path: Path) -> None:
    """It has ended before: its work is its key, for ever."""
    file = tmp_path / "spec.toml"
    file.write_text('version = 1\nkind = "demo.hello"\nunique_key = "once"\nunique_scope = "ever"\n')
    job = enqueued(call("jobs", "run", file))
    assert call("worker", "--drain").code == 0
    followed = call("jobs", "run", file, "--follow")
    assert (followed.code, f"{job} " in followed.out, "COMPLETED" in followed.out) == (0, True, True)


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "kind = 'k'", "version must be 1, the only one there is, not None"),
        ("a.toml", "version = true\nkind = 'k'", "version must be 1, the only one there is, not True"),
        ("a.toml", "version = 2\nkind = 'k'", "version must be 1, the only one there is, not 2"),
        ("a.toml", "version = 1", "kind"),
        ("a.toml", "version = 1\nkind = 5", "kind must be text"),
        ("a.toml", "version = 1\nkind = 'k'\nqueu = 'q'", "queu is not known; did you mean queue?"),
        ("a.toml", "version = 1\nkind = 'k'\nlimits = 3", "limits is not a table"),
        (
            "a.toml",
            "version = 1\nkind = 'k'\nlimits.attempts = 3",
            "limits.attempts is not known; did you mean max_",
        ),
        (
            "a.toml",
            "version = 1\nkind = 'k'\nlimits.max_attempts = 'many'",
            "max_attempts must be a whole number",
        ),
        ("a.toml", "version = 1\nkind = 'k'\nlimits.timeout = 5", "timeout must be a timedelta"),
        (
            "a.toml",
            "version = 1\nkind = 'k'\nlimits.timeout = 'long'",
            "timeout = 'long' is not a duration: write",
        ),
        ("a.toml", "version = 1\nkind = 'k'\nrun_at = 2030-01-31", "run_at must be a datetime with a time zone"),
        ("a.toml", "version = 1\nkind = 'k'\nprovenance.by = 5", "provenance.by must be text of at most 500"),
        ("a.toml", "version = 1\nkind = 'k'\nprovenance.why = 'x'", "provenance.why is not known"),
        ("a.toml", "version = 1\nkind = 'k'\npayload = [1]", "the payload must be a JSON object"),
        ("a.toml", "version = 1\nkind = 'k'\npayload.at = 2030-01-31", "the payload is not JSON"),
        ("a.toml", "version = 1\nkind = 'k'\npayload = {}\npayload_file = 'x.json'", "exclude each other"),
        ("a.toml", "version = 1\nkind = 'k'\npayload_file = 'x.json'", "x.json cannot be read: No such file"),
        ("a.toml", "version = 1\nkind = 'k'\npayload_file = 5", "payload_file must be the name of a file"),
        ("a.toml", "version = ", "Invalid value (at end of document)"),
        ("a.json", '{"version": 1, "kind": "a", "kind": "b"}', "'kind' comes twice in one object"),
        ("a.json", '{"version": 1, "kind": "k", "provenance": {"by": "\\ud800"}}', "provenance.by must be text"),
        ("a.json", "[1]", "holds no object"),
        ("a.json", "[" * 100_000, "cannot be read"),
        ("a.json", '{"version": 1,', "line 1 column 15"),
        ("a.ini", "version: 1", "must be named .toml, .json, .yaml or .yml for what it is"),
        ("a.yaml", "version: 1\nkind: a\nkind: b", "'kind' comes twice in one object"),
        ("a.yaml", "version: 1\nkind: k\npayload: {a: &a [1], b: *a}", "anchors and aliases are not read"),
        ("a.yaml", "version: 1\nkind: k\npayload: {1: 2}\nqueue: [", "expected the node content"),
        ("a.yaml", "version: 1\nkind: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a.yml", "- version: 1", "holds no object"),
        ("a.yml", "version: 1\nkind: no", "kind must be text"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_with_its_place(
    call: Call, db: Db, tmp_path: Path, name: str, text: str, said: str
) -> None:
    """R24: unknown keys and wrong types are refused."""
    file = tmp_path / name
    file.write_text(text)
    answer: Any = call("jobs", "run", file)
    assert (answer.code, answer.out) == (1, "")
    assert str(tmp_path) in answer.err
    assert said in answer.err
    assert (statuses(db), audit.deeds(db)) == ({}, [])


def test_a_document_that_is_not_there_is_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for name in ("none.toml", "bytes.toml"):
        answer = call("jobs", "run", tmp_path / name)
        assert (answer.code, answer.err.count("\n")) == (1, 1)
        assert f"{name} cannot be read: " in answer.err
