"""How many processes: one decision at a time, any situation, and whole recorded loads in simulated time."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.jobs.fleet.plan import Balance, Pool, Strategy
from snapapp.jobs.fleet.scaling import Box, Decision, Load, PoolState, decide, share
from tests.labs.fleet import simulate
from tests.labs.fleet.simulate import MOST, Run, balanced, fixed

AUTO = Pool(name="it", min_processes=1, max_processes=8, balance=Balance.AUTO)
SIMPLE = replace(AUTO, balance=Balance.SIMPLE)
ROOMY = Box()


def state(pool: Pool = AUTO, *, present: int = 2, due: int = 0, rate: float | None = 1.0, **more: float) -> PoolState:
    load = {name: more.pop(name) for name in ("oldest_due", "arrivals", "finished", "runtime") if name in more}
    running = int(more.pop("running", present if due else 0))
    return PoolState(pool=pool, present=present, rate=rate, load=Load(due=due, running=running, **load), **more)


def decided(its: PoolState, box: Box = ROOMY) -> Decision:
    [decision] = decide([its], box)
    return decision


# --- off and simple ---------------------------------------------------------------------------------------------


def test_a_pool_that_is_off_always_has_its_most() -> None:
    """M51."""
    off = replace(AUTO, balance=Balance.OFF)
    assert [decided(state(off, present=has, due=due)).wanted for has, due in ((0, 0), (3, 999), (8, 0))] == [8, 8, 8]


@pytest.mark.parametrize(("size", "wanted"), [(0, 1), (1, 1), (10, 1), (11, 2), (75, 8), (1_000_000, 8)])
def test_a_simple_pool_follows_the_formula(size: int, wanted: int) -> None:
    """M52: min(max, max(min, ceil(size / threshold)))."""
    assert decided(state(SIMPLE, due=size)).wanted == wanted


# --- auto -------------------------------------------------------------------------------------------------------


def test_it_grows_by_one_step_when_more_is_due_than_will_be_cleared_in_time() -> None:
    """M53, M54: more than 3 a process, and 20 s of work where 10 are planned."""
    decision = decided(state(present=2, due=40))
    assert decision == Decision(3, "40 are due and would take 20 s")


def test_a_backlog_that_is_cleared_in_a_moment_is_no_reason_to_grow() -> None:
    assert decided(state(present=2, due=40, rate=100.0)).wanted == 2


def test_slow_jobs_that_wait_long_are_a_reason_even_if_they_are_few() -> None:
    """2 a process is under the threshold, but they would wait for two minutes."""
    assert decided(state(present=2, due=4, rate=1 / 60)).wanted == 3


def test_it_does_not_move_before_its_cooldown_is_over() -> None:
    """M54, M55, FD10."""
    assert decided(state(due=1000, since_change=1.0)).wanted == 2
    assert decided(state(due=1000, since_change=3.0)).wanted == 3


def test_it_goes_down_only_after_a_while_of_calm() -> None:
    assert decided(state(present=4, calm_for=3.0)).wanted == 4
    assert decided(state(present=4, calm_for=9.0)).wanted == 3
    assert decided(state(present=1, calm_for=inf)) == Decision(1, "it has its fewest")


def test_it_keeps_what_is_needed_by_what_comes() -> None:
    busy = state(present=4, arrivals=3.0, running=3)
    assert (busy.is_calm, decided(busy).wanted) == (False, 4)


def test_jobs_that_nobody_may_run_are_no_reason_to_grow() -> None:
    """FD10: a dead queue; it even goes down."""
    dead = state(present=2, due=500, running=0, rate=None)
    assert decided(dead).wanted == 2
    assert decided(replace(dead, stalled_for=10.0)) == Decision(
        1, "500 are due and none runs: more processes would not help"
    )


def test_the_first_process_comes_as_soon_as_a_job_is_due() -> None:
    idle = replace(AUTO, min_processes=0)
    assert decided(state(idle, present=0)).wanted == 0
    assert decided(state(idle, present=0, due=1, rate=None)).wanted == 1


def test_max_shift_allows_longer_steps() -> None:
    assert decided(state(replace(AUTO, max_shift=4), present=2, due=1000)).wanted == 6
    assert decided(state(replace(AUTO, max_shift=4), present=2, due=30)).wanted == 3, "no more than are needed"


# --- the box ----------------------------------------------------------------------------------------------------


def test_it_never_grows_past_the_free_memory() -> None:
    """Free memory, or the pool's own p95, says how many fit."""
    hungry = state(replace(AUTO, max_shift=8), due=1000, rss_mb=100.0)
    assert decided(hungry, Box(free_mb=450.0, reserve_mb=200.0)).wanted == 4
    tight = decided(hungry, Box(free_mb=250.0, reserve_mb=200.0))
    assert tight.wanted == 2
    assert tight.reason.endswith("only 250 MB are free, of which 200 stay, and one takes 100")
    assert decided(replace(hungry, rss_mb=None), Box(free_mb=330.0, reserve_mb=200.0)).wanted == 4


def test_a_lid_over_all_pools_is_shared_by_the_time_to_clear() -> None:
    """M56: the one that would take longer has more; strategy size compares counts."""
    slow, quick = state(present=2, due=100, rate=0.1), state(present=2, due=100, rate=10.0)
    more, fewer = decide([slow, quick], Box(max_processes=4))
    assert (more.wanted, fewer.wanted) == (3, 1)
    assert fewer.reason == "others have more to clear: its share is 1"
    assert share([1.0, 3.0], [AUTO, AUTO], 8) == [2, 6]
    assert share([0.0, 0.0], [AUTO, AUTO], 2) == [1, 1], "empty: the least"
    by_size = replace(AUTO, strategy=Strategy.SIZE)
    assert [one.wanted for one in decide([state(by_size, present=1, due=10), state(by_size, present=3, due=90)])] == [
        1,
        4,
    ]


POOLS = st.builds(
    lambda least, more, balance, shift: Pool(
        name="it", min_processes=least, max_processes=max(1, least + more), balance=balance, max_shift=shift
    ),
    st.integers(0, 5),
    st.integers(0, 20),
    st.sampled_from(list(Balance)),
    st.integers(1, 4),
)
POSITIVE = st.floats(0, 1e6, allow_nan=False)
CREWS = st.builds(
    PoolState,
    pool=POOLS,
    present=st.integers(0, 40),
    load=st.builds(
        Load,
        due=st.integers(0, 10_000),
        oldest_due=POSITIVE,
        running=st.integers(0, 1000),
        arrivals=POSITIVE,
        finished=POSITIVE,
        runtime=st.none() | POSITIVE,
    ),
    rate=st.none() | POSITIVE,
    since_change=POSITIVE,
    calm_for=POSITIVE,
    stalled_for=POSITIVE,
    rss_mb=st.none() | st.floats(1, 1e5),
)
BOXES = st.builds(
    Box, max_processes=st.none() | st.integers(0, 50), free_mb=st.none() | POSITIVE, reserve_mb=st.floats(0, 1e4)
)


@given(st.lists(CREWS, min_size=1, max_size=4), BOXES)
def test_whatever_the_situation_no_bound_is_broken(states: list[PoolState], box: Box) -> None:
    decisions = decide(states, box)
    for its, decision in zip(states, decisions, strict=True):
        pool, least = its.pool, min(its.present, its.pool.min_processes)
        assert least <= decision.wanted <= max(its.present, pool.max_processes), decision
        assert decision.reason
        if pool.balance is Balance.AUTO and pool.min_processes <= its.present <= pool.max_processes:
            assert abs(decision.wanted - its.present) <= pool.max_shift, decision
        if decision.wanted > its.present >= pool.min_processes and pool.balance is not Balance.OFF:
            assert box.free_mb is None or box.free_mb >= box.reserve_mb, decision


# --- whole loads ------------------------------------------------------------------------------------------------

SHAPES = {shape.name: shape for shape in simulate.shapes()}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: balanced(shape) for name, shape in SHAPES.items()}


def test_under_a_steady_load_it_settles_and_stays(runs: dict[str, Run]) -> None:
    """M55, FD10: no flapping, at the bill of the best fixed size."""
    run, best = runs["steady"], simulate.best_fixed(SHAPES["steady"])
    assert run.turns <= 1
    assert [at for at, _, _ in run.changes if at > 60] == []
    assert run.processes[-1] == best.processes[-1]
    assert run.bill <= 1.1 * best.bill


def test_a_spike_is_drained_nearly_as_fast_as_by_the_best_fixed_size_for_much_less(runs: dict[str, Run]) -> None:
    run, best = runs["spike"], fixed(SHAPES["spike"], MOST)
    assert run.drained_after(60.0) <= 1.5 * best.drained_after(60.0)
    assert run.bill < best.bill / 2
    assert (run.turns, run.processes[-1]) == (1, 1)


@pytest.mark.at_length  # a steady load and a spike are followed in every run, above
def test_a_sawtooth_is_followed_and_not_chased(runs: dict[str, Run]) -> None:
    """Up once and down once a tooth."""
    run, best = runs["sawtooth"], simulate.best_fixed(SHAPES["sawtooth"])
    assert run.turns <= 2 * 6
    assert run.bill < best.bill
    assert run.wait_at(0.99) < 3.0


def test_a_dead_queue_moves_nothing(runs: dict[str, Run]) -> None:
    """FD10."""
    assert runs["dead-queue"].changes == []


def test_slow_jobs_settle_where_they_keep_up(runs: dict[str, Run]) -> None:
    run = runs["slow-kind"]
    assert run.turns == 0
    assert [at for at, _, _ in run.changes if at > 120] == []
    assert run.wait_at(0.99) < 30.0, "less than one of them takes"


def test_a_long_cooldown_and_a_longer_step_are_obeyed(runs: dict[str, Run]) -> None:
    slower = replace(simulate.AUTO, cooldown=timedelta(seconds=9))
    moments = [at for at, _, _ in balanced(SHAPES["spike"], slower).changes]
    assert all(later - sooner > 8.9 for sooner, later in pairwise(moments))
    bolder = balanced(SHAPES["spike"], replace(simulate.AUTO, max_shift=4))
    assert bolder.drained_after(60.0) < runs["spike"].drained_after(60.0)


@pytest.mark.at_length  # the loads that they show are judged above in every run
def test_the_pictures_are_those_of_this_code() -> None:
    drawn = simulate.pictures()
    on_file = {path.name: path.read_text() for path in simulate.DOCS.glob("*.svg")}
    assert on_file == drawn, "type: python -m tests.labs simulate"
