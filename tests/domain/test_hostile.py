"""Values that no row can hold, and people who send them: a refusal in our own words, and a transaction that goes on."""

import math
from collections.abc import Iterator
from contextlib import suppress
from time import process_time
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as some
from sqlalchemy.orm import Session

from snapapp.domain import snaps, templates, webhooks
from snapapp.domain.finding import search
from snapapp.domain.finding.search import Criteria
from snapapp.domain.rules import subjects
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.rules.texts import composed
from snapapp.domain.tables import Snap
from snapapp.errors import Conflict, Invalid, NotFound
from tests.domain.making import OWN, acting, make_snap

UNSTORABLE = ["\0", "a\0b", "\ud800", "\udfff", "a\ud83d"]


@pytest.fixture
def own(own: Session) -> Iterator[Session]:
    yield own
    assert own.connection().exec_driver_sql("SELECT 1").scalar() == 1, "the transaction goes on"


def refused(make: Any, *arguments: Any, **given: Any) -> tuple[str, ...]:
    with pytest.raises(Invalid) as raised:
        make(*arguments, **given)
    return raised.value.details


@pytest.mark.parametrize("text", UNSTORABLE)
def test_a_subject_that_cannot_be_kept_is_refused(text: str) -> None:
    assert refused(Subject, text)[0].startswith("subject.id: ")
    assert refused(Subject, "x", (Attribute(text, "x"),))[0].startswith("subject.attributes[0].key: ")
    assert refused(Subject, "x", (Attribute("x", text),))[0].startswith("subject.attributes[0].stringValue: ")


@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400, 1e14, True, None])
def test_a_number_that_cannot_be_kept_is_refused(number: Any) -> None:
    assert refused(Subject, "x", (Attribute("x", number),))[0].startswith("subject.attributes[0].numberValue: ")


def test_attributes_are_few_distinct_and_short() -> None:
    """S28."""
    many = tuple(Attribute(f"k{number}", "") for number in range(101))
    assert refused(Subject, None, many) == ("subject.attributes: must be at most 100",)
    twice = (Attribute("k", "1"), Attribute("k", "2"))
    assert refused(Subject, None, twice) == ("subject.attributes[1].key: is there twice",)
    long = (Attribute("k" * 121, "x"), Attribute("k", "x" * 1001), Attribute("", "x"))
    assert len(refused(Subject, "i" * 201, long)) == 4


def test_the_largest_subject_can_be_kept_found_and_corrected(own: Session) -> None:
    """Whatever index it enters: 4 bytes a character, nothing that could be compressed."""
    everything = [chr(0x10000 + (number * 7919) % 0x8000) for number in range(1000)]
    attributes = tuple(
        Attribute(f"{number:03}{''.join(everything[:117])}", "".join(everything)) for number in range(100)
    )
    largest = Subject("".join(everything[:200]), attributes)
    snap = make_snap(own, OWN, subject=largest, nickname="".join(everything[:120]), email="".join(everything[:320]))
    assert snap.subject == largest
    assert found(own, Criteria(subject_id=largest.id)) == [snap.id]
    assert found(own, Criteria(attr_key=attributes[99].key, attr_value="".join(everything))) == [snap.id]
    assert snaps.correct(own, OWN, snap.id, largest, by="".join(everything[:320])).subject == largest


def found(own: Session, criteria: Criteria) -> list[Any]:
    return [snap.id for snap in search.by_subject(own, OWN, criteria).items]


# Everything that text can be, what no row can hold included.
texts = some.text(max_size=40) | some.sampled_from(UNSTORABLE)
values = texts | some.floats() | some.integers() | some.booleans()


@given(subject_id=some.none() | texts, attributes=some.lists(some.tuples(texts, values), max_size=5))
def test_whatever_is_said_of_a_subject_it_is_kept_as_it_is_or_refused(
    engine: sqlalchemy.Engine, subject_id: str | None, attributes: list[tuple[str, Any]]
) -> None:
    with acting(engine, OWN) as session:
        try:
            said = Subject(subject_id, tuple(Attribute(key, value) for key, value in attributes))
        except Invalid:
            return
        snap: Snap = make_snap(session, OWN, subject=said)
        assert snap.subject.attributes == said.attributes
        for key, value in attributes:
            if isinstance(value, str):
                assert snap.id in found(session, Criteria(attr_key=key, attr_value=value))
            elif -1e300 < value < 1e300:
                assert snap.id in found(session, Criteria(attr_key=key, attr_min=value, attr_max=value))
        session.connection().exec_driver_sql("DELETE FROM snap")


@given(
    texts=some.fixed_dictionaries(
        {}, optional={name: some.text(max_size=30) for name in ("subject_id", "attr_key", "attr_value", "q")}
    ),
    numbers=some.fixed_dictionaries({}, optional={name: some.floats() for name in ("attr_min", "attr_max")}),
)
def test_whatever_is_searched_for_is_answered_or_refused(
    engine: sqlalchemy.Engine, texts: dict[str, Any], numbers: dict[str, Any]
) -> None:
    with acting(engine, OWN) as session, suppress(Invalid):
        assert search.by_subject(session, OWN, Criteria(**texts, **numbers)).items == []


@given(some.text())
def test_words_are_few_short_and_without_accents(text: str) -> None:
    words = subjects.words(text)
    assert len(set(words)) == len(words)
    assert all(0 < len(word) <= subjects.WORD_LONGEST and word.isalnum() for word in words)
    assert subjects.words(" ".join(words)) == words or any(len(word) == subjects.WORD_LONGEST for word in words)


def test_accents_without_an_end_on_one_letter_cost_the_other_words_nothing() -> None:
    piled = "a" + "\u0301" * 10_000 + "\u0316" * 10_000  # Unicode wants them in the other order
    began = process_time()
    assert composed(piled) == piled
    assert subjects.words(f"Maçã {piled} Maca\u0303\u0327") == ["maca", "a"]
    assert composed("Mac\u0327a\u0303" + "\u0301" * 20).startswith("Maçã")
    assert process_time() - began < 0.5


@pytest.mark.parametrize("text", UNSTORABLE)
def test_no_function_takes_a_text_that_cannot_be_kept(own: Session, text: str) -> None:
    snap = make_snap(own, OWN)
    for call in (
        lambda: search.recent(own, OWN, nickname=text),
        lambda: search.videos_mine(own, OWN, text),
        lambda: search.of_video(own, OWN, snap.video_id, nickname=text),
    ):
        refused(call)
    snaps.note_cancel(own, OWN, snap.id, text)


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1])
def test_an_id_that_no_row_can_have_is_not_found(own: Session, number: int) -> None:
    for call in (templates.resolve, templates.read, webhooks.read, webhooks.remove):
        with pytest.raises(NotFound, match=str(number)):
            call(own, OWN, number)


def test_webhooks_are_few(own: Session) -> None:
    for number in range(webhooks.MOST):
        webhooks.add(own, OWN, f"https://example.org/{number}", ["snap.completed", "snap.completed"])
    with pytest.raises(Conflict):
        webhooks.add(own, OWN, "https://example.org/", ["snap.completed"])
