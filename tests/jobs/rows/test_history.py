"""The roll-up of what attempts did and took: written with their costs, merged as it ages, read as points."""

from datetime import datetime, timedelta

import pytest

from snapapp.jobs.model import Finished, Retried, Status, Succeeded
from snapapp.jobs.rows.costs import CollectedCosts
from snapapp.jobs.rows.people import history
from snapapp.jobs.rows.people.history import Over, Percentiles
from tests.factory import OOPS, Db, ago, running_job, scalar

NOTHING = Percentiles(None, None, None)


def add(db: Db, at: datetime, kind: str = "", *, minutes: int = 1, completed: int = 1, runs: list[int]) -> None:
    db.execute(
        "INSERT INTO job_history VALUES (%s, %s, %s, %s, 0, 0, 0, '{}', %s)", [at, minutes, kind, completed, runs]
    )


def of_minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


@pytest.mark.parametrize(
    ("amounts", "histogram"),
    [
        ([], []),
        ([0.2, 1.0], [2]),
        ([1.1], [0, 1]),
        ([2.0, 3.0, 4.0], [0, 0, 1, 0, 2]),
        ([None, 1.0], [1]),
        ([1e12], [0] * 53 + [1]),
    ],
)
def test_amounts_are_counted_in_buckets_that_grow(db: Db, amounts: list[float], histogram: list[int]) -> None:
    assert scalar(db, "SELECT job_histogram(%s::float8[], %s::int[])", amounts, [1] * len(amounts)) == histogram


@pytest.mark.parametrize("exact", [0.5, 7.0, 250.0, 3_600_000.0])
def test_a_percentile_is_within_a_fifth_of_what_it_is(db: Db, exact: float) -> None:
    amounts = [exact * (0.5 + number / 100) for number in range(101)]  # the middle one is exact
    counted = scalar(db, "SELECT job_histogram(%s::float8[], %s::int[])", amounts, [3] * 101)
    told = history.percentiles(counted)
    assert told.p50 == pytest.approx(exact, rel=0.2, abs=0.5)
    assert told.p95 == pytest.approx(exact * 1.45, rel=0.2, abs=0.5)
    assert history.percentiles([]) == NOTHING


def test_attempts_are_rolled_up_by_kind_and_together_as_they_are_written_down(db: Db) -> None:
    collected = CollectedCosts()
    for kind, status in (("one", Status.COMPLETED), ("one", Status.COMPLETED), ("two", Status.FAILED)):
        collected.add([Finished(running_job(db, kind=kind), Succeeded(None), 2.0)], status)
    collected.write(db)
    collected.add([Finished(running_job(db, kind="two"), Retried(OOPS, timedelta(0)), 3.0)], Status.RETRY_WAIT)
    collected.write(db)
    found = {each.kind: each for each in history.kinds(db, Over.HOUR)}
    assert {kind: (its.completed, its.failed, its.retried) for kind, its in found.items()} == {
        "one": (2, 0, 0),
        "two": (0, 1, 1),
    }
    assert found["one"].run.p50 == pytest.approx(2000, rel=0.2)
    assert sum(each.completed + each.failed + each.retried for each in history.points(db, Over.HOUR)) == 4
    assert [each.completed for each in history.points(db, Over.WEEK, "one")] == [2]


def test_the_few_quick_attempts_that_failed_are_counted_beside_the_many_that_did_not(db: Db) -> None:
    collected, many, few = CollectedCosts(), running_job(db), running_job(db)
    many.is_measured = few.is_measured = False
    for _ in range(97):
        collected.add([Finished(many, Succeeded(None), 0.001)], Status.COMPLETED)
    for _ in range(3):
        collected.add([Finished(few, Retried(OOPS, timedelta(0)), 0.001)], Status.RETRY_WAIT)
    collected.write(db)
    [told] = history.kinds(db, Over.HOUR)
    assert (told.completed, told.retried) == (97, 3)


def test_rows_get_longer_with_age_and_nothing_is_lost_until_they_go(db: Db) -> None:
    now = of_minute(ago())
    for minute in range(0, 60 * 30, 7):  # thirty hours
        add(db, now - timedelta(minutes=minute), runs=[0, 1])
    add(db, now - timedelta(days=9), minutes=60, runs=[1])
    before = scalar(db, "SELECT count(*) FROM job_history") - 1
    history.merge(db)
    history.merge(db)
    lengths: dict[int, int] = dict(
        db.execute("SELECT minutes, count(*) FROM job_history GROUP BY 1 ORDER BY 1").fetchall()
    )
    assert lengths[1] <= 130 / 7 + 2
    assert lengths[10] <= 24 * 6 + 7
    assert lengths[60] <= 6
    assert scalar(db, "SELECT sum(completed) FROM job_history") == before
    assert scalar(db, "SELECT sum(runs[2]) FROM job_history") == before
    week = history.points(db, Over.WEEK)
    assert sum(each.completed for each in week) == before
    assert all(each.at and each.at.minute == 0 for each in week)
    assert 24 * 60 / 7 - 1 <= sum(each.completed for each in history.points(db, Over.DAY)) <= 24 * 60 / 7 + 3


def test_what_falls_into_the_same_hour_later_is_added_to_it(db: Db) -> None:
    hour = of_minute(ago(days=2)).replace(minute=0)
    add(db, hour, minutes=60, completed=2, runs=[2])
    add(db, hour + timedelta(minutes=20), minutes=10, completed=3, runs=[0, 0, 3])
    history.merge(db)
    assert db.execute("SELECT at, minutes, completed, runs FROM job_history").fetchall() == [(hour, 60, 5, [2, 0, 3])]
