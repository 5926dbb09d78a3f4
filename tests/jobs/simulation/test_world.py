"""Simulated time: what theory says of it, and every rule of the queue that decides who waits."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import factorial, inf
from statistics import fmean
from typing import Any

import pytest

from snapapp.jobs.fleet.plan import Balance, Pool
from snapapp.jobs.simulation.forecast import Waits, forecast
from snapapp.jobs.simulation.load import Load, Work
from snapapp.jobs.simulation.world import Boxes, World

ONE = Pool(name="one")


def begun(
    works: Sequence[Work], *, limits: Mapping[str, int] | None = None, pools: tuple[Pool, ...] = (ONE,), **more: float
) -> list[float]:
    """When each began, in the order of `works`."""
    setup: dict[str, Any] = {"pools": pools, **more}
    ordered = sorted(works, key=lambda work: work.at)
    world = World(Load(works=ordered, lasts=1, limits=limits or {}), Boxes(**setup))
    world.run()
    at = {id(work): began for work, began in world.began}
    return [at.get(id(work), inf) for work in works]


# --- as theory has it -------------------------------------------------------------------------------------------


def erlang_c(servers: int, asked: float) -> float:
    """The share of jobs that have to wait, where both arrivals and run times are exponential."""
    top = asked**servers / factorial(servers) * servers / (servers - asked)
    return top / (sum(asked**one / factorial(one) for one in range(servers)) + top)


LONG = pytest.mark.at_length


@pytest.mark.at_length  # cores and priorities are as they should be, below, in every run
@pytest.mark.parametrize(
    ("servers", "asked", "jobs"),
    [
        (4, 2.4, 30_000),
        *(pytest.param(*case, 120_000, marks=LONG) for case in ((1, 0.5), (1, 0.8), (4, 3.0), (8, 6.4))),
    ],
)
def test_waits_are_those_of_queueing_theory(servers: int, asked: float, jobs: int) -> None:
    dice, at, works = random.Random(7), 0.0, []
    for _ in range(jobs):
        at += dice.expovariate(asked)
        works.append(Work(at, dice.expovariate(1)))
    told = forecast(Load(works=works, lasts=at), Boxes(pools=(replace(ONE, max_processes=servers),)))
    mean = erlang_c(servers, asked) / (servers - asked)
    world = World(Load(works=works, lasts=at), Boxes(pools=(ONE,), slots=servers))
    world.run()
    waits = [began - work.at for work, began in world.began]
    assert fmean(waits) == pytest.approx(mean, rel=0.06)
    assert told.waits == Waits.of(waits), "slots and processes are the same where nothing else is short"
    assert told.slots_busy == pytest.approx(asked / servers, rel=0.02)


def test_cores_are_shared_and_make_all_slower_alike() -> None:
    """Two that compute on one core take twice as long; one that waits for something else is not disturbed."""
    both = [Work(0, 10, cpu=1), Work(0, 10, cpu=1), Work(0, 10), Work(1, 1)]
    assert begun(both, slots=3, cores=1) == [0, 0, 0, 10]
    assert begun([*both[:2], Work(0, 1), Work(0.5, 1)], slots=2, cores=1)[2:] == [20, 20]
    assert begun([Work(0, 10, cpu=0.5), Work(0, 10, cpu=1), Work(1, 1)], slots=2, cores=1)[2] == pytest.approx(12.5)


def test_several_boxes_have_their_own_cores() -> None:
    works = [Work(0, 10, cpu=1), Work(0, 10, cpu=1), Work(0, 1), Work(0, 1)]
    assert begun(works, count=2, cores=1) == [0, 0, 10, 10]


# --- as the queue has it ----------------------------------------------------------------------------------------


def test_priority_comes_first_and_then_age() -> None:
    works = [Work(0, 5), Work(1, 5), Work(2, 5, priority=1), Work(3, 5)]
    assert begun(works) == [0, 10, 5, 15]


def test_a_limit_holds_its_own_and_nobody_else() -> None:
    works = [Work(0, 10, "report"), Work(0, 10, "report"), Work(1, 10, "mail")]
    assert begun(works, slots=3, limits={"kind:report": 1}) == [0, 10, 1]


def test_of_several_patterns_the_most_specific_one_rules_alone() -> None:
    works = [Work(0, 10, key=key) for key in ("camera:1", "camera:1", "camera:7", "camera:7", "gate")]
    limits = {"key:*": 0, "key:camera:*": 1, "key:camera:7": 2}
    assert begun(works, slots=5, limits=limits) == [0, 10, 0, 0, inf]


def test_what_nobody_may_run_is_told_and_ends_the_simulation() -> None:
    works = [Work(0, 1, queue="mail"), Work(0, 1, queue="reports"), Work(0, 1, "held")]
    load = Load(works=works, lasts=1, limits={"kind:held": 0})
    told = forecast(load, Boxes(pools=(replace(ONE, queues=("mail", "default")),)))
    assert (told.never_began, told.waits.jobs) == (2, 1)
    assert not told.keeps(timedelta(days=1))


def test_a_pool_works_its_own_queues() -> None:
    pools = (Pool(name="mail", queues=("mail",)), Pool(name="rest", queues=("default",)))
    works = [Work(0, 10, queue="mail"), Work(0, 10, queue="mail"), Work(0, 1), Work(0, 1)]
    assert begun(works, pools=pools) == [0, 10, 0, 1]


def test_the_autoscaler_starts_processes_and_lets_them_go() -> None:
    scaled = Pool(name="it", min_processes=0, max_processes=4, balance=Balance.AUTO)
    works = [Work(10 + 0.05 * number, 1.0) for number in range(200)]
    load = Load(works=works, lasts=400)
    world = World(load, Boxes(pools=(scaled,)))
    world.run(until=400)
    [scaler] = world.scalers
    assert len(world.began) == 200
    assert [to for _, _, to in scaler.changes] == [1, 2, 3, 4, 3, 2, 1, 0]
    one, four = (forecast(load, Boxes(pools=(replace(ONE, max_processes=many),))) for many in (1, 4))
    assert four.waits.p99 < Waits.of([at - work.at for work, at in world.began]).p99 < one.waits.p99


def test_a_forecast_says_what_people_decide_by() -> None:
    works = [Work(0, 6, "a", cpu=1), Work(0, 6, "b", cpu=1), Work(3, 6, "b", cpu=1)]
    told = forecast(Load(works=works, lasts=36), Boxes(pools=(ONE,), cores=2))
    assert told.by_kind["a"].longest == 0
    assert told.by_kind["b"] == Waits(2, 6, 6, 6, 9)
    assert (told.most_waiting, told.most_waiting_at, told.lasted) == (2, 3, 36)
    assert (told.slots_busy, told.cores_busy) == (1, 0.25)
    assert (told.cost(2), told.keeps(timedelta(seconds=6)), told.keeps(timedelta(seconds=5))) == (0.02, True, False)
