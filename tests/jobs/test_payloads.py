"""A payload with a type is checked where it is enqueued and before its processor begins, in every executor."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from sqlalchemy import Connection

from snapapp.jobs import Failure, Job, enqueue, enqueue_many, payloads, registry
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.process import kinds
from snapapp.jobs.registry import Registry
from tests.factory import Db, make_job, row
from tests.jobs.working import until_status, working


@dataclass
class Mail:
    to: str
    day: date
    copies: int = 1


class Receipt(BaseModel):
    number: int = Field(gt=0)


def send(job: Job[Mail, str]) -> str:
    assert isinstance(job.data, Mail)
    return f"{job.data.copies} to {job.data.to} on {job.data.day:%A}"


async def print_out(job: "Job[Receipt]") -> int:
    return job.data.number


def say(job: Job[Mail]) -> list[str]:
    return ["printf", '{"ok": true, "result": "%s"}', job.data.to]


def take_anything(job: Job) -> dict[str, Any]:
    assert job.data is None
    return job.payload


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    known = Registry()
    monkeypatch.setattr(registry, "default", known)
    known.processor("mail")(send)
    known.processor("mail.child", executor="process")(send)
    known.processor("mail.program", executor="command")(say)
    known.processor("receipt")(print_out)
    known.processor("anything")(take_anything)
    return known


def test_a_payload_is_taken_as_its_type_and_comes_back_as_one(url: str, db: Db, known: Registry) -> None:
    """W4."""
    mail = Mail("ana", date(2026, 11, 22), copies=2)
    given = {"mail": mail, "mail.child": {"to": "ana", "day": "2026-11-22", "copies": "2"}, "mail.program": mail}
    given |= {"receipt": Receipt(number=7), "anything": mail}
    ids = {kind: enqueue(db, kind, payload) or 0 for kind, payload in given.items()}
    as_stored = {"to": "ana", "day": "2026-11-22", "copies": 2}
    assert row(db, ids["mail"]).payload == row(db, ids["mail.child"]).payload == as_stored
    with working(url, known, command_allow=("printf",)):
        results = {kind: until_status(db, job_id, "COMPLETED").result for kind, job_id in ids.items()}
    assert results == {
        "mail": "2 to ana on Sunday",
        "mail.child": "2 to ana on Sunday",
        "mail.program": "ana",
        "receipt": 7,
        "anything": as_stored,
    }


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("mail", {"to": "ana"}, "the payload is no Mail: day: Field required"),
        ("mail", {"to": "ana", "day": "soon"}, "the payload is no Mail: day: Input should be a valid date"),
        ("receipt", {"number": 0}, "the payload is no Receipt: number: Input should be greater than 0"),
        ("receipt", Mail("ana", date(2026, 1, 1)), "the payload is no Receipt: number: Field required"),
        ("mail", ["ana"], "the payload must be a JSON object, not list"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_enqueued(
    db: Db, known: Registry, kind: str, payload: object, said: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        enqueue_many(db, [{"kind": "anything"}, {"kind": kind, "payload": payload}])
    assert str(refused.value).startswith(said)
    assert db.execute("SELECT FROM snap_processing_job").fetchall() == []


def test_what_came_in_another_way_fails_before_its_processor_begins(url: str, db: Db, known: Registry) -> None:
    seen: list[Any] = []

    def failed(_db: Connection, job: Job[Mail], failure: Failure) -> None:
        seen.append((job.data, failure.error))

    known.processor("mail.hook", failed=failed)(send)
    ids = [make_job(db, kind=kind, payload={"to": 5}) for kind in ("mail", "mail.child", "mail.program", "mail.hook")]
    with working(url, known, command_allow=("printf",)):
        ended = [until_status(db, job_id, "FAILED") for job_id in ids]
    assert {(one.attempt_count, one.last_error) for one in ended} == {
        (1, "InvalidJob: the payload is no Mail: to: Input should be a valid string; day: Field required")
    }
    assert [data for data, _ in seen] == [None]


def test_without_pydantic_a_dataclass_looks_at_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "_adapter", lambda wanted: None)
    assert payloads.typed({"to": "ana", "day": "2026-11-22"}, Mail).copies == 1
    with pytest.raises(InvalidJob, match=r"the payload is no Mail: .* unexpected keyword argument 'cc'"):
        payloads.typed({"to": "ana", "day": "2026-11-22", "cc": "bia"}, Mail)
    assert payloads.plain(Mail("ana", date(2026, 1, 1)), Mail)["copies"] == 1
    assert payloads.schema(Mail) == {"title": "Mail", "properties": {"to": {}, "day": {}, "copies": {}}}


def test_a_type_that_cannot_be_read_hides_no_other_kind(known: Registry) -> None:
    def broken(job: "Job[Nobody]") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    known.processor("a.broken")(broken)
    found = {one.kind: one.payload or {} for one in kinds.summaries(known)}
    assert found["a.broken"] == {"description": "its type cannot be read: NameError: name 'Nobody' is not defined"}
    assert found["mail"]["required"] == ["to", "day"]


def test_an_annotation_that_says_nothing_of_the_payload_wants_nothing() -> None:
    def untyped(job):  # type: ignore[no-untyped-def]
        ...

    def of_a_mapping(job: Job[dict[str, Any]]) -> None: ...

    assert [payloads.wanted_by(one) for one in (untyped, take_anything, of_a_mapping, send)] == [None, None, None, Mail]
    assert payloads.wanted_by(print_out) is Receipt


def test_only_the_annotation_of_the_job_says_what_is_wanted() -> None:
    """Not that of the result, nor of what an object has besides; their names may be known to the type checker alone."""

    def computes(job) -> "dict[str, Nobody]": ...  # type: ignore[no-untyped-def,name-defined,empty-body]  # noqa: F821

    class Sender:
        seen: "dict[str, Nobody]"  # type: ignore[name-defined]  # noqa: F821

        def __call__(self, job: "Job[Mail]") -> None: ...
        def takes_anything(self, job: Job) -> None: ...

    wanting: list[Callable[..., Any]] = [
        computes,
        Sender().takes_anything,
        partial(computes),
        print,
        max,
        itemgetter(0),
        Sender(),
        Sender().__call__,
    ]
    assert [payloads.wanted_by(one) for one in wanting] == [None, None, None, None, None, None, Mail, Mail]


def test_a_partial_and_an_object_want_what_their_function_wants(db: Db, known: Registry) -> None:
    def send_by(server: str, job: "Job[Mail]") -> None: ...

    @dataclass
    class Sender:  # which cannot be hashed
        server: str

        def __call__(self, job: "Job[Mail]") -> None: ...

    for kind, function in (("partial", partial(send_by, "a")), ("object", Sender("a")), ("both", partial(Sender("a")))):
        known.processor(kind)(function)
        with pytest.raises(InvalidJob, match="the payload is no Mail: to: Field required"):
            enqueue(db, kind, {"day": "2026-11-22"})


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64")
    user_id: int = Field(alias="userId")
    day: date
    seal: bytes

    @computed_field
    def year(self) -> int:
        return self.day.year


def test_a_model_is_stored_as_it_is_read(db: Db, known: Registry) -> None:
    def take(job: Job[Order]) -> None: ...

    known.processor("order")(take)
    order = Order(userId=7, day=date(2026, 1, 1), seal=b"\xff")
    stored = row(db, enqueue(db, "order", order) or 0).payload
    assert stored == {"userId": 7, "day": "2026-01-01", "seal": "_w=="}
    assert payloads.typed(json.dumps(stored).encode(), Order) == order
    for given in (stored, {"userId": 7, "day": date(2026, 1, 1), "seal": b"\xff"}):  # as JSON has it, and as Python
        assert row(db, enqueue(db, "order", given) or 0).payload == stored


def test_types_that_are_no_classes(db: Db, known: Registry) -> None:
    def either(job: Job[Mail | Receipt]) -> None: ...
    def numbers(job: Job[list[int]]) -> None: ...
    def mapped(job: Job[Mapping[str, Any]]) -> None: ...

    for function in (either, numbers, mapped):
        known.processor(function.__name__)(function)
    assert row(db, enqueue(db, "either", {"number": 7}) or 0).payload == {"number": 7}
    assert row(db, enqueue(db, "mapped", {"number": 7}) or 0).payload == {"number": 7}
    for kind, given in (("either", {"number": 0}), ("numbers", {"a": 1}), ("mail", Mail("ana", "soon"))):  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="the payload is no"):
            enqueue(db, kind, given)


def test_a_job_whose_type_nobody_knows_ends_all_the_same(url: str, db: Db, known: Registry) -> None:
    def lost(job: "Job[Nobody]") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    known.processor("lost")(lost)
    known.processor("lost.program", executor="command")(lost)
    ids = [make_job(db, kind=kind, max_attempts=1) for kind in ("lost", "lost.program")]
    ids.append(make_job(db, kind="lost", max_attempts=1, attempt_count=1))  # its worker was lost: only to be buried
    with working(url, known, command_allow=("printf",)):
        ended = [until_status(db, job_id, "FAILED").last_error for job_id in ids]
    assert ended == ["NameError: name 'Nobody' is not defined"] * 2 + ["worker lost"]
