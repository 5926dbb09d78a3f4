"""`jobs run`: enqueues a job from a document in TOML, JSON or YAML, which can be kept beside the code and reviewed:

    version = 1
    kind = "report"
    payload_file = "november.json"      # beside this document; or a table [payload]
    queue = "reports"

    [limits]
    max_attempts = 2
    timeout = "10m"

    [provenance]
    by = "ana"
    code_ref = "v1.4.2"

The audit records who ran it, and from which file.
"""

import hashlib
import json
import platform
import tomllib
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from psycopg import Rollback

from snapapp.jobs.adding import enqueue
from snapapp.jobs.cli.audited import DOOR, person
from snapapp.jobs.cli.jobs.tail import tail_jobs
from snapapp.jobs.cli.shown import answer, remark
from snapapp.jobs.cli.typed import Add, Db, duration, moment
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import clean
from snapapp.jobs.rows.people import audit, overviews
from snapapp.jobs.rows.people.audit import Actor

_LONGEST = 500  # characters of a text in [provenance]

# The names that may stand in each table of the document. `enqueue` checks their values.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "": (
        *("version", "kind", "payload", "payload_file", "queue", "tenant", "priority", "delay", "run_at", "request_id"),
        *("unique_key", "unique_scope", "unique_by", "concurrency_key", "after", "on_parent_failure"),
    ),
    "limits": ("max_attempts", "timeout"),
    "provenance": ("by", "code_ref", "lock_hash", "note"),
}


def add_command(add: Add) -> None:
    parser = add("run", run_spec, "add the job that a document describes, in TOML, JSON or YAML; docs/queue.md has one")
    parser.set_defaults(needs_kinds=True)
    parser.add_argument("spec", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="only say whether it can be run")
    parser.add_argument("--follow", action="store_true", help="show what happens until the job is over; 1: it failed")


def run_spec(db: Db, arguments: Namespace) -> int:
    file: Path = arguments.spec
    text = _text_of(file)
    job, provenance = read(text, file)
    job_id = None
    with db.transaction() as transaction:
        try:
            job_id = enqueue(db, **job)
        except InvalidJob as error:
            raise InvalidJob(f"{file}: {error}") from None
        place = clean(str(file.resolve()), _LONGEST, keep="end")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        detail = provenance | {"spec": place, "sha256": sha256, "host": platform.node()}
        who = Actor(provenance.get("by") or person() or "", DOOR)
        audit.write(db, who, "job.run", f"job {job_id}", jobs=1, detail=detail)
        if arguments.check:
            raise Rollback(transaction)
    if arguments.follow and not arguments.check:
        return tail_jobs(db, Namespace(ids=[job_id], kind=None, queue=None, tenant=None, json=arguments.json))
    if arguments.check:
        answer(arguments, {"kind": job["kind"], "can_run": True}, f"{file} can be run.")
    else:
        answer(arguments, {"id": job_id}, f"Job {job_id}")
    if not overviews.is_known(db, job["kind"]):
        remark(f"No worker that is alive knows the kind {job['kind']}: the job waits for one.")
    return 0


def read(text: str, file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The arguments for enqueue, and the provenance of the document; InvalidJob names every mistake with its place."""
    given = _parse(text, file)
    tables = {"": given} | {name: given.pop(name, {}) for name in ("limits", "provenance")}
    mistakes = [f"{name} is not a table" for name, table in tables.items() if not isinstance(table, dict)]
    if not mistakes:
        mistakes = [mistake for name, table in tables.items() for mistake in _unknown(name, table)]
    if type(given.get("version")) is not int or given["version"] != 1:
        mistakes.insert(0, f"version must be 1, the only one there is, not {given.get('version')!r:.100}")
    if "payload" in given and "payload_file" in given:
        mistakes.append("payload and payload_file exclude each other")
    if mistakes:
        raise InvalidJob(f"{file}: {'; '.join(mistakes)}")
    for name, value in tables["provenance"].items():
        if not isinstance(value, str) or clean(value, _LONGEST) != value:
            expected = f"text of at most {_LONGEST} characters, not {value!r:.100}"
            raise InvalidJob(f"{file}: provenance.{name} must be {expected}")
    job = given | tables["limits"]
    if "payload_file" in job:
        job["payload"] = _payload(job.pop("payload_file"), file)
    del job["version"]
    return {"kind": "", **job} | _times(job, file), tables["provenance"]


def _unknown(name: str, table: Mapping[str, Any]) -> list[str]:
    known = _PLACES[name]
    place = f"{name}." if name else ""
    near = {key: get_close_matches(key, known, 1) for key in table if key not in known}
    return [f"{place}{key} is not known{f'; did you mean {n[0]}?' if n else ''}" for key, n in near.items()]


def _times(job: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The durations and times that the document gives as text: JSON has neither type, and TOML has no durations."""
    times = {}
    for name, read_text in (("delay", duration), ("timeout", duration), ("run_at", moment)):
        if isinstance(job.get(name), str):
            try:
                times[name] = read_text(job[name])
            except ArgumentTypeError as error:
                raise InvalidJob(f"{file}: {name} = {error}") from None
    return times


def _payload(name: object, file: Path) -> dict[str, Any]:
    if not isinstance(name, str):
        raise InvalidJob(f"{file}: payload_file must be the name of a file beside it, not {name!r:.100}")
    beside = file.parent / name
    return _parse(_text_of(beside), beside)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidJob(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parse(text: str, file: Path) -> dict[str, Any]:
    parse = _PARSERS.get(file.suffix.lower())
    if parse is None:
        raise InvalidJob(f"{file} must be named .toml, .json, .yaml or .yml for what it is")
    try:
        given = parse(text)
    except (ValueError, RecursionError) as error:  # its text names the line and the column
        raise InvalidJob(f"{file} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise InvalidJob(f"{file} holds no object")
    return given


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        [doubled, *_] = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        raise ValueError(f"{doubled!r} comes twice in one object")
    return table


def _yaml(text: str) -> Any:
    try:
        from snapapp.jobs.cli.jobs.yaml_document import parse  # the only module that needs PyYAML
    except ModuleNotFoundError:
        raise ValueError("PyYAML is not installed: pip install snapapp[yaml], or write it in TOML or JSON") from None
    return parse(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": partial(json.loads, object_pairs_hook=_refuse_repeated_names),
    ".yaml": _yaml,
    ".yml": _yaml,
}
