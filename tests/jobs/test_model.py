"""Values: what a job is, what a failure leaves behind, and which JSON PostgreSQL can keep."""

import asyncio
import json
from dataclasses import FrozenInstanceError, replace
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.jobs.errors import InvalidJob, JobCancelled, NoConnection
from snapapp.jobs.model import (
    JSON_CAP,
    PROGRESS_CAP,
    TEXT_CAP,
    TRACEBACK_CAP,
    Failure,
    Job,
    Lease,
    Succeeded,
    clean,
    describe,
    to_json,
)

TEXT = st.text(st.characters())  # lone surrogates included


class Ear:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    def progress(self, job: Job, value: str) -> None:
        self.heard.append((value,))

    def log(self, job: Job, level: str, message: str) -> None:
        self.heard.append((level, message))

    def check(self, job: Job) -> None:
        raise JobCancelled

    def connection(self, job: Job) -> NoReturn:
        raise NoConnection


def make(**fields: Any) -> Job:
    given: dict[str, Any] = {
        "id": 1,
        "kind": "test",
        "queue": "default",
        "tenant": "",
        "priority": 0,
        "snap_id": uuid4(),
    }
    given |= {"payload_json": b"{}", "attempt": 1, "max_attempts": 3, "lease_seq": 7, "timeout_ms": None}
    return Job(**given | {"request_id": None} | fields)


# --- a job ------------------------------------------------------------------------------------------------------


def test_a_job_knows_its_lease() -> None:
    assert make(id=5, lease_seq=9).lease == Lease(5, 9)


@pytest.mark.parametrize(("attempt", "exhausted"), [(1, False), (3, False), (4, True)])
def test_a_job_is_exhausted_beyond_its_last_attempt(attempt: int, exhausted: bool) -> None:
    assert make(attempt=attempt).exhausted == exhausted


def test_a_payload_is_decoded_once_an_attempt_and_cannot_be_changed_for_the_next_one() -> None:
    it = make(payload_json=b'{"n": [1]}')
    it.payload["n"].append(2)
    assert it.payload is it.payload
    assert replace(it, attempt=2).payload == {"n": [1]}


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        ((40,), {"percent": 40, "note": None}),
        ((99.5, "frames"), {"percent": 99.5, "note": "frames"}),
        (({"step": 3},), {"step": 3}),
    ],
)
def test_progress_is_a_number_with_a_word_or_an_object(reported: tuple[Any, ...], kept: dict[str, Any]) -> None:
    """W21."""
    ear = Ear()
    make(channel=ear).update_progress(*reported)
    assert [json.loads(value) for (value,) in ear.heard] == [kept]


@pytest.mark.parametrize("wrong", [float("nan"), {"text": "p" * PROGRESS_CAP}, {"text": "\0"}, {"it": object()}])
def test_progress_that_cannot_be_kept_is_a_line_in_the_log_and_no_reason_to_fail(wrong: Any) -> None:
    """W20."""
    ear = Ear()
    make(channel=ear).update_progress(wrong)
    [(level, said)] = ear.heard
    assert level == "WARNING"
    assert said.startswith("the progress ")


def test_a_line_is_cleaned_and_cut() -> None:
    ear = Ear()
    it = make(channel=ear)
    it.log("a\0b")
    it.log("x" * 10**6, "ERROR")
    assert ear.heard[0] == ("INFO", "a\\0b")
    assert [len(message) for _, message in ear.heard] == [4, TEXT_CAP]


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(ValueError, match="unknown log level 'LOUD'"):
        make(channel=Ear()).log("hello", "LOUD")


def test_a_flood_of_lines_ends_with_a_word_about_it() -> None:
    ear = Ear()
    it = make(channel=ear, lines_left=3)
    for number in range(9):
        it.log(str(number))
    assert ear.heard == [
        ("INFO", "0"),
        ("INFO", "1"),
        ("WARNING", "too many log lines: the rest of this attempt's are dropped"),
    ]


def test_a_job_asks_its_channel_whether_to_stop() -> None:
    with pytest.raises(JobCancelled):
        make(channel=Ear()).raise_if_cancelled()


def test_a_job_without_a_channel_can_be_run_in_a_test() -> None:
    it = make()
    it.update_progress(5)
    it.log("hello")
    it.raise_if_cancelled()


def test_outcomes_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Succeeded("1").result = "2"  # type: ignore[misc]


# --- JSON -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "not JSON that PostgreSQL can keep: ValueError"),
        (float("inf"), "not JSON that PostgreSQL can keep: ValueError"),
        (object(), "Object of type object is not JSON serializable"),
        ({(1, 2): 3}, "keys must be str"),
        ({"a": b"bytes"}, "Object of type bytes is not JSON serializable"),
        ("\ud800", "UnicodeEncodeError"),
        (["\0"], "holds a NUL character"),
        ({"\0": 1}, "holds a NUL character"),
        ("\\\0", "holds a NUL character"),
        ("x" * JSON_CAP, f"has {JSON_CAP + 2} bytes as JSON, more than the {JSON_CAP} allowed"),
        ("ä" * (JSON_CAP // 2), f"has {JSON_CAP + 2} bytes as JSON"),
        (10**5000, "ValueError"),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, int) else "int",
)
def test_what_is_not_json_is_refused_with_the_reason(value: object, why: str) -> None:
    """Promise 9, FC21."""
    with pytest.raises(InvalidJob, match=why) as refused:
        to_json(value, what="result")
    assert str(refused.value).startswith("the result ")
    assert len(str(refused.value)) < 5000


@pytest.mark.parametrize(
    "value", ["\\u0000", "\\\\u0000", "u0000", "\\", "x" * (JSON_CAP - 2), "é", "\x01", -0.0, None]
)
def test_what_only_looks_bad_is_json(value: object) -> None:
    assert json.loads(to_json(value)) == value


def test_what_goes_in_a_circle_or_too_deep_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep):
        with pytest.raises(InvalidJob):
            to_json(value)
    while deep:  # else its end would recurse as deep
        deep = deep.pop()


@given(TEXT)
def test_a_text_is_refused_exactly_where_it_has_a_nul_or_half_a_character(text: str) -> None:
    is_bad = "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)
    try:
        assert json.loads(to_json(text)) == text
        assert not is_bad
    except InvalidJob:
        assert is_bad


# --- text -------------------------------------------------------------------------------------------------------


@given(TEXT, st.integers(1, 50), st.sampled_from(["start", "end"]))
def test_clean_text_can_be_kept_and_is_short_enough(text: str, limit: int, keep: str) -> None:
    cleaned = clean(text, limit, keep=keep)
    assert len(cleaned) <= limit
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_text_that_can_be_kept_is_kept_as_it_is(text: str) -> None:
    assert clean(text, max(len(text), 1)) == text


def test_a_cut_shows_on_the_side_that_was_cut() -> None:
    assert clean("0123456789", 5) == "0123…"
    assert clean("0123456789", 5, keep="end") == "…6789"


# --- failures ---------------------------------------------------------------------------------------------------


class SilentError(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class DeadlyError(Exception):
    def __str__(self) -> NoReturn:
        raise SystemExit(3)


class OddError(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


HOSTILE: list[tuple[BaseException, str]] = [
    (ValueError("plain"), "ValueError: plain"),
    (ValueError(), "ValueError"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (SystemExit(2), "SystemExit: 2"),
    (SilentError(), "SilentError: (its text cannot be read: RuntimeError)"),
    (DeadlyError(), "DeadlyError: (its text cannot be read: SystemExit)"),
    (OddError(), "OddError: (its text cannot be read: TypeError)"),
    (ValueError("nul \0 here"), "ValueError: nul \\0 here"),
    (ValueError("half \ud83d"), "ValueError: half \\ud83d"),
    (ExceptionGroup("two", [ValueError(), KeyError()]), "ExceptionGroup: two (2 sub-exceptions): ValueError; KeyError"),
]


@pytest.mark.parametrize(("error", "text"), HOSTILE, ids=lambda it: type(it).__name__)
def test_every_error_can_be_described(error: BaseException, text: str) -> None:
    """FD12, promise 9."""
    assert describe(error) == text


def test_fifty_megabytes_of_message_become_four_thousand_characters() -> None:
    """FD13, S16."""
    failure = Failure.of(ValueError("\0" * 50_000_000))
    assert len(failure.error) == TEXT_CAP
    assert len(failure.trace) <= TRACEBACK_CAP


def test_a_failure_shows_where_it_happened_and_why() -> None:
    try:
        try:
            raise KeyError("root")
        except KeyError as root:
            raise ValueError("surface") from root
    except ValueError as error:
        failure = Failure.of(error)
    assert failure.error == "ValueError: surface"
    assert "test_a_failure_shows_where_it_happened_and_why" in failure.trace
    assert failure.trace.endswith("caused by KeyError: 'root'\n")


def test_a_failure_of_tasks_shows_what_failed_in_them_and_where() -> None:
    async def download() -> None:
        raise ConnectionError("the camera is gone")

    async def work() -> None:
        async with asyncio.TaskGroup(), asyncio.TaskGroup() as inner:
            inner.create_task(download())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(work())
    failure = Failure.of(caught.value)
    assert failure.error.endswith("(1 sub-exception): ConnectionError: the camera is gone")
    assert failure.trace.endswith('raise ConnectionError("the camera is gone")\n')


def test_the_end_of_a_deep_traceback_is_kept() -> None:
    def dig(depth: int) -> None:
        if depth == 0:
            raise ValueError("the bottom is reached")
        dig(depth - 1)

    with pytest.raises(ValueError) as caught:
        dig(500)
    trace = Failure.of(caught.value).trace
    assert len(trace) <= TRACEBACK_CAP
    assert trace.endswith('raise ValueError("the bottom is reached")\n')


def test_an_error_that_causes_itself_does_not_go_on_for_ever() -> None:
    error = ValueError("again")
    error.__cause__ = error
    assert Failure.of(error).trace == "caused by ValueError: again\n"


def test_a_hostile_cause_is_described_like_any_other() -> None:
    error = ValueError("on top")
    error.__cause__ = SilentError()
    assert "SilentError: (its text cannot be read" in Failure.of(error).trace
