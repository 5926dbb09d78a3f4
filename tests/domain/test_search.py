"""Finding snaps again: what each list holds, in which order, and where its pages end."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy.orm import Session

from snapapp.domain import sharing, snaps, videos
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Window
from snapapp.domain.finding.search import Criteria
from snapapp.domain.tables import Snap, SnapStatus
from snapapp.errors import Invalid, UnsupportedSort
from tests.domain.making import EVIDENCE, OWN, make_snap, subject
from tests.factory import ago, hence


def made(own: Session, count: int, **given: Any) -> list[UUID]:
    """Snaps a minute apart, the first one the newest."""
    found = [make_snap(own, OWN, **given).id for _ in range(count)]
    for minutes, snap_id in enumerate(found):
        move(own, snap_id, created_at=ago(minutes=minutes + 1))
    return found


def move(own: Session, snap_id: UUID, **columns: Any) -> None:
    for name, value in columns.items():
        own.connection().exec_driver_sql(
            f"UPDATE snap SET {name} = %(value)s WHERE id = %(id)s", {"value": value, "id": snap_id}
        )


def found(own: Session, **criteria: Any) -> list[UUID]:
    return ids(search.by_subject(own, OWN, Criteria(**criteria)).items)


def ids(items: Sequence[Snap]) -> list[UUID]:
    return [snap.id for snap in items]


# --- by subject -------------------------------------------------------------------------------------------------


def test_a_subject_is_found_by_its_id_newest_first(own: Session) -> None:
    """S20."""
    mine = made(own, 3, subject=subject("boi-7"))
    make_snap(own, OWN, subject=subject("boi-8"))
    assert found(own, subject_id="boi-7") == mine
    assert found(own, subject_id="BOI-7") == found(own, subject_id="boi") == []


def test_an_attribute_is_found_whatever_the_case_of_its_key(own: Session) -> None:
    """S20."""
    [snap] = made(own, 1, subject=subject(Brinco="A1"))
    assert found(own, attr_key="bRINCO", attr_value="A1") == [snap]
    assert found(own, attr_key="brinco", attr_value="a1") == []
    assert found(own, attr_key="raca", attr_value="A1") == []


@pytest.mark.parametrize("value", ["450.5", "450.50", "+450.5", "4505e-1", " 450.5 "])
def test_a_number_is_found_however_it_is_written(own: Session, value: str) -> None:
    """D12: numbers were stored, and never searched."""
    [snap] = made(own, 1, subject=subject(peso=450.5))
    assert found(own, attr_key="peso", attr_value=value) == [snap]


@pytest.mark.parametrize("value", ["450.6", "NaN", "inf", "4_5", "٤٥٠", "", "450,5", "1e400", "9" * 1000, "\u00a0"])
def test_what_is_no_such_number_finds_no_number(own: Session, value: str) -> None:
    made(own, 1, subject=subject(peso=450.5))
    assert found(own, attr_key="peso", attr_value=value) == []


def test_a_text_that_looks_like_a_number_is_found_as_the_text_it_is(own: Session) -> None:
    [text], [number] = made(own, 1, subject=subject(brinco="007")), made(own, 1, subject=subject(brinco=7))
    assert set(found(own, attr_key="brinco", attr_value="007")) == {text, number}
    assert found(own, attr_key="brinco", attr_value="7") == [number]


def test_numbers_are_found_by_range_ends_included(own: Session) -> None:
    """S36, D12."""
    light, middle, heavy = (made(own, 1, subject=subject(peso=weight))[0] for weight in (399.9, 400, 500))
    assert set(found(own, attr_key="Peso", attr_min=400, attr_max=500)) == {middle, heavy}
    assert found(own, attr_key="peso", attr_min=400.1) == [heavy]
    assert set(found(own, attr_key="peso", attr_max=400)) == {light, middle}
    assert found(own, attr_key="peso", attr_min=500, attr_max=400) == []
    assert found(own, attr_key="peso", attr_value="400", attr_min=450) == []


def test_long_values_that_begin_alike_are_told_apart(own: Session) -> None:
    """An index holds only their heads."""
    first, second = "🐂" * 500 + "a", "🐂" * 500 + "b"
    [snap] = made(own, 1, subject=subject(observacoes=first))
    made(own, 1, subject=subject(observacoes=second))
    assert found(own, attr_key="observacoes", attr_value=first) == [snap]


def test_words_are_found_by_their_beginnings_without_accents_or_case(own: Session) -> None:
    [snap] = made(own, 1, subject=subject("boi-7", observacoes="Não come: MAÇÃ, capim", peso=450.5))
    made(own, 1, subject=subject("vaca-3", observacoes="come capim"))
    for q in ("maca", "Maçã", "nao MAC", "boi maç 7", "não! come?", "450", "MAÇÃ nao come capim"):
        assert found(own, q=q) == [snap], q
    assert len(found(own, q="capim")) == 2
    for q in ("aca", "macas", "boi vaca", "pasto"):
        assert found(own, q=q) == [], q


@pytest.mark.parametrize("value", [1_234_567, 76012345678912.0, 1234567.25])
def test_a_long_number_is_found_by_its_digits(own: Session, value: float) -> None:
    """An ear tag that somebody kept as a number: `1.23457e+06` would be found by nobody."""
    [snap] = made(own, 1, subject=subject(brinco=value))
    assert found(own, q=f"{value:.15g}") == found(own, q="1234567" if value < 1e7 else "760123") == [snap]


def test_a_corrected_subject_is_found_by_what_it_is_now(own: Session) -> None:
    [snap] = made(own, 1, subject=subject("boi-7", brinco="A1", peso=400, observacoes="manco"))
    snaps.correct(own, OWN, snap, subject("boi-8", brinco="B2", peso=500, observacoes="sadio"), by="Ana")
    for old in ({"subject_id": "boi-7"}, {"attr_key": "brinco", "attr_value": "A1"}, {"q": "manco"}):
        assert found(own, **old) == []
    assert found(own, attr_key="peso", attr_max=450) == []
    for new in ({"subject_id": "boi-8"}, {"attr_key": "brinco", "attr_value": "B2"}, {"q": "sadio"}):
        assert found(own, **new) == [snap]


def test_all_criteria_hold_together(own: Session) -> None:
    wanted = make_snap(own, OWN, subject=subject("boi-7", brinco="A1", peso=450, observacoes="manco")).id
    for other in (
        subject("boi-8", brinco="A1", peso=450, observacoes="manco"),
        subject("boi-7", brinco="A2", peso=450, observacoes="manco"),
        subject("boi-7", brinco="A1", peso=450, observacoes="sadio"),
    ):
        make_snap(own, OWN, subject=other)
    criteria: dict[str, Any] = {"subject_id": "boi-7", "attr_key": "brinco", "attr_value": "A1", "q": "manco"}
    criteria |= {"status": SnapStatus.PENDING, "since": ago(minutes=1), "until": hence(minutes=1)}
    assert found(own, **criteria) == [wanted]
    assert found(own, **criteria | {"status": SnapStatus.COMPLETED}) == []


def test_a_search_can_be_narrowed_by_status(own: Session) -> None:
    pending, completed, failed = made(own, 3, subject=subject("boi-7"))
    snaps.complete(own, OWN, completed, EVIDENCE)
    snaps.fail(own, OWN, failed, "oops")
    for status, snap in zip(SnapStatus, (pending, completed, failed), strict=True):
        assert found(own, subject_id="boi-7", status=status) == [snap]
        assert ids(search.recent(own, OWN, criteria=Criteria(status=status)).items) == [snap]


def test_a_search_can_be_narrowed_by_time_the_end_excluded(own: Session) -> None:
    newest, middle, oldest = made(own, 3, subject=subject("boi-7"))
    at = snaps.read(own, OWN, middle).created_at
    assert found(own, subject_id="boi-7", since=at) == [newest, middle]
    assert found(own, subject_id="boi-7", until=at) == [oldest]
    assert ids(search.recent(own, OWN, criteria=Criteria(since=at, until=at + timedelta(seconds=1))).items) == [middle]


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ({}, "Provide subjectId or attrKey+attrValue"),
        ({"status": SnapStatus.FAILED}, "Provide subjectId or attrKey+attrValue"),
        ({"attr_key": "brinco"}, "Provide attrKey and attrValue together"),
        ({"attr_value": "A1"}, "Provide attrKey and attrValue together"),
        ({"subject_id": "x", "attr_value": "A1"}, "Provide attrKey and attrValue together"),
        ({"attr_min": 1.0}, "Validation failed"),
        ({"attr_key": "a", "attr_min": float("nan")}, "Validation failed"),
        ({"attr_key": "a", "attr_max": float("inf")}, "Validation failed"),
        ({"attr_key": "a", "attr_max": 10**400}, "Validation failed"),
        ({"q": "!?"}, "Validation failed"),
        ({"q": ""}, "Validation failed"),
        ({"q": "\0"}, "Validation failed"),
        ({"subject_id": "\ud800"}, "Validation failed"),
        ({"subject_id": ""}, "Validation failed"),
        ({"subject_id": "x", "since": ago().replace(tzinfo=None)}, "Validation failed"),
    ],
)
def test_criteria_that_make_no_sense_are_refused(own: Session, criteria: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as raised:
        search.by_subject(own, OWN, Criteria(**criteria))
    assert raised.value.message == message


# --- of a video, of a person ------------------------------------------------------------------------------------


def test_the_snaps_of_a_video_come_by_moment(own: Session) -> None:
    """S19."""
    video = videos.at_url(own, OWN, "https://example.org/a.mp4").id
    made_of_it = made(own, 3, video_id=video)
    for snap_id, moment in zip(made_of_it, (9.0, 1.0, 5.0), strict=True):
        move(own, snap_id, resolved_start_seconds=moment)
    pending = make_snap(own, OWN, video_id=video).id
    make_snap(own, OWN)
    first, second, third = made_of_it
    assert ids(search.of_video(own, OWN, video).items) == [second, third, first, pending]
    down = search.of_video(own, OWN, video, Window(sort_dir="DESC"))
    assert ids(down.items) == [pending, first, third, second]
    assert search.of_video(own, OWN, uuid4()).items == []


def test_the_snaps_of_a_video_can_be_one_persons(own: Session) -> None:
    """S19: in any case."""
    video = videos.at_url(own, OWN, "https://example.org/a.mp4").id
    ana = make_snap(own, OWN, video_id=video, nickname="Ana José").id
    make_snap(own, OWN, video_id=video, nickname="Bob", email="bob@example.org")
    assert ids(search.of_video(own, OWN, video, nickname="ANA JOSÉ").items) == [ana]
    assert search.of_video(own, OWN, video, nickname="An").items == []


def test_mine_are_a_nicknames_newest_first(own: Session) -> None:
    """S21."""
    mine = made(own, 3, nickname="Ana")
    make_snap(own, OWN, nickname="Bob", email="bob@example.org")
    assert ids(search.recent(own, OWN, nickname="aNa").items) == mine
    assert ids(search.recent(own, OWN, Window(sort_dir="asc"), nickname="ana").items) == mine[::-1]


def test_my_videos_say_how_many_snaps_and_which_was_the_last(own: Session) -> None:
    """S21."""
    first = videos.at_url(own, OWN, "https://example.org/a.mp4")
    second = videos.at_url(own, OWN, "https://example.org/b.mp4")
    in_first = made(own, 2, video_id=first.id)
    in_second = made(own, 3, video_id=second.id)
    move(own, in_second[0], created_at=ago(seconds=1))
    make_snap(own, OWN, video_id=first.id, nickname="Bob", email="bob@example.org")
    one, other = search.videos_mine(own, OWN, "ANA").items
    assert (one.video_id, one.video_url, one.snap_count, one.latest_snap_id) == (
        *(second.id, "https://example.org/b.mp4"),
        *(3, in_second[0]),
    )
    assert (other.video_id, other.snap_count, other.latest_snap_id) == (first.id, 2, in_first[0])
    for window, order in {
        Window(sort_by="snapCount", sort_dir="asc"): [first.id, second.id],
        Window(sort_by="videoUrl"): [second.id, first.id],
        Window(sort_by="videoUrl", sort_dir="asc", limit=1): [first.id],
        Window(offset=1): [first.id],
    }.items():
        assert [it.video_id for it in search.videos_mine(own, OWN, "ana", window).items] == order


def test_hidden_snaps_are_in_no_list(own: Session) -> None:
    snap = make_snap(own, OWN, subject=subject("boi-7", brinco="A1"))
    sharing.share(own, OWN, snap.id)
    snaps.remove(own, OWN, snap.id)
    assert found(own, subject_id="boi-7") == found(own, attr_key="brinco", attr_value="A1") == found(own, q="boi") == []
    assert search.of_video(own, OWN, snap.video_id).items == []
    assert search.recent(own, OWN, nickname="ana").items == search.recent(own, OWN).items == []
    assert search.videos_mine(own, OWN, "ana").items == []


# --- pages ------------------------------------------------------------------------------------------------------


def test_pages_follow_each_other_without_gap_or_repetition(own: Session) -> None:
    """S22: also where all were made at one moment."""
    everything = {make_snap(own, OWN).id for _ in range(7)}
    seen: list[UUID] = []
    for offset, more in ((0, True), (3, True), (6, False)):
        page = search.recent(own, OWN, Window(offset=offset, limit=3), nickname="ana")
        assert (page.offset, page.limit, page.has_more) == (offset, 3, more)
        assert (page.sort_by, page.sort_dir) == ("createdAt", "desc")
        seen += ids(page.items)
    assert len(seen) == 7
    assert set(seen) == everything
    assert search.recent(own, OWN, Window(limit=7), nickname="ana").has_more is False
    past = search.recent(own, OWN, Window(offset=100), nickname="ana")
    assert (past.items, past.has_more) == ([], False)


def test_a_list_is_sorted_by_what_it_allows_and_nothing_else(own: Session) -> None:
    """S22."""
    made(own, 2)
    for sort_by in ("createdAt", "processedAt", "resolvedStartSeconds", "dataFilmagem", "subjectId", "nickname"):
        for sort_dir in ("asc", "desc"):
            assert len(search.recent(own, OWN, Window(sort_by=sort_by, sort_dir=sort_dir), nickname="ana").items) == 2
    with pytest.raises(UnsupportedSort) as raised:
        search.videos_mine(own, OWN, "ana", Window(sort_by="id; DROP TABLE snap"))
    assert str(raised.value) == (
        "Unsupported sortBy: id; DROP TABLE snap. Allowed: latestSnapCreatedAt, snapCount, videoUrl"
    )


@pytest.mark.parametrize(
    "given",
    [{"limit": 0}, {"limit": 101}, {"offset": -1}, {"offset": 10**30}, {"sort_dir": "up"}, {"sort_dir": ""}],
)
def test_a_window_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="Validation failed: "):
        Window(**given)
