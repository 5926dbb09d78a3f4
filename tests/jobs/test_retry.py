"""When a failed attempt comes again."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tenacity import RetryCallState, wait_exception, wait_fixed, wait_random_exponential
from tenacity.wait import wait_base

from snapapp.jobs import Job, Permanent, Snooze
from snapapp.jobs.errors import JobCancelled, JobInterrupted
from snapapp.jobs.executors import attempt
from snapapp.jobs.model import Buried, Failure, Interrupted, Outcome, Retried, Snoozed, Stopped
from snapapp.jobs.registry import Registry
from snapapp.jobs.retry import delay_after, pause_after, wait_spread
from snapapp.jobs.settings import RetrySettings
from tests.factory import OOPS, Db, hence, row, running_job, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.working import until_status, working

SECOND = timedelta(seconds=1)
YEARS = timedelta(days=3650)

SETTINGS = st.builds(
    RetrySettings,
    base=st.timedeltas(timedelta(milliseconds=1), timedelta(hours=1)),
    multiplier=st.floats(1, 10),
    maximum=st.timedeltas(timedelta(hours=1), timedelta(days=30)),
    jitter=st.floats(0, 1),
)


def seconds(settings: RetrySettings, attempt: int) -> float:
    return delay_after(attempt, wait_spread(settings)).total_seconds()


@given(SETTINGS, st.integers(1, 10**6))
def test_a_delay_lies_between_the_base_and_the_maximum(settings: RetrySettings, attempt: int) -> None:
    """FD14, I8: no attempt is too high to be computed."""
    delay = delay_after(attempt, wait_spread(settings))
    rounding = timedelta(microseconds=1)
    assert settings.base - rounding <= delay <= settings.maximum + rounding


@given(SETTINGS, st.integers(1, 10) | st.integers(1, 10**6))
def test_a_delay_is_never_shorter_than_the_plain_one_of_the_attempt_before(
    settings: RetrySettings, attempt: int
) -> None:
    """S6, R31, W46."""
    plain = RetrySettings(base=settings.base, multiplier=settings.multiplier, maximum=settings.maximum, jitter=0)
    later = seconds(plain, attempt + 1)
    assert seconds(plain, attempt) <= later
    assume(later < settings.maximum.total_seconds() / 2)
    assert later - 1e-5 <= seconds(settings, attempt + 1) <= later * (1 + settings.jitter) + 1e-5


def test_the_default_doubles_from_ten_seconds_to_five_minutes() -> None:
    """S15."""
    plain = RetrySettings(jitter=0)
    assert [seconds(plain, attempt) for attempt in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize("attempt", [1, 3, 50])
def test_what_failed_together_does_not_come_back_together(attempt: int) -> None:
    """FD15, also where the delay has reached its maximum."""
    delays = sorted(seconds(RetrySettings(), attempt) for _ in range(1000))
    width = delays[-1] - delays[0]
    assert width > 0.15 * delays[0]
    twentieths = [int(20 * (delay - delays[0]) / (width + 1e-9)) for delay in delays]
    assert max(twentieths.count(bucket) for bucket in range(20)) < 100  # 50 expected; 100 is seven sigma away


def test_the_second_failure_waits_longer_than_the_first(db: Db) -> None:
    """R27, S6: each attempt is asked for its own delay."""
    plain = wait_spread(RetrySettings(jitter=0))
    ends = [attempt.failed(replace(running_job(db), attempt=number), OOPS, plain) for number in (1, 2, 3)]
    assert [end.delay.total_seconds() for end in ends[:2] if isinstance(end, Retried)] == [10, 20]
    assert ends[2] == Buried(OOPS)


def test_a_delay_is_exact_without_jitter_and_random_with_it() -> None:
    assert len({seconds(RetrySettings(jitter=0), 2) for _ in range(9)}) == 1
    assert len({seconds(RetrySettings(), 2) for _ in range(9)}) == 9


def test_after_an_error_of_its_own_a_worker_waits_longer_each_time_but_not_for_long() -> None:
    """W9: by chance, so that not all come back at once."""
    waits = {failures: [pause_after(failures) for _ in range(500)] for failures in (1, 3, 6, 10**6)}
    means = [sum(some) / 500 for some in waits.values()]
    assert means == sorted(means)
    assert means[2] > 3 * means[0]
    assert all(0.05 <= each <= 2 for some in waits.values() for each in some)


def test_any_strategy_of_tenacity_will_do() -> None:
    """R27, W53."""
    assert delay_after(7, wait_fixed(3) + wait_fixed(SECOND)) == timedelta(seconds=4)
    assert delay_after(10**6, wait_random_exponential(max=60)) <= timedelta(seconds=60)


@pytest.mark.parametrize(
    ("held", "outcome"),
    [
        ([OSError(), Permanent("no video")], Buried(Failure("Permanent: no video"))),
        ([ExceptionGroup("inner", [Permanent("no video")])], Buried(Failure("Permanent: no video"))),
        ([Snooze(SECOND), Snooze(SECOND)], Snoozed(SECOND)),
        ([Permanent("no video"), JobInterrupted("the worker stops")], Interrupted()),
        ([JobCancelled("a person"), OSError()], Stopped(Failure("JobCancelled: a person"))),
    ],
)
def test_what_decides_about_a_job_is_heeded_within_a_group_of_errors(
    db: Db, held: list[Exception], outcome: Outcome
) -> None:
    """As an asyncio.TaskGroup raises it: every such job was tried again."""
    assert attempt.judge(running_job(db), ExceptionGroup("in a TaskGroup", held), wait_fixed(3)) == outcome


def test_an_error_beside_a_snooze_costs_the_attempt(db: Db) -> None:
    """Else a job that fails and snoozes at once would run for ever."""
    both = ExceptionGroup("in a TaskGroup", [Snooze(SECOND), OSError("the camera is gone")])
    assert isinstance(attempt.judge(running_job(db), both, wait_fixed(3)), Retried)


class PatientWith(wait_base):
    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome and retry_state.outcome.exception()
        return 60.0 if isinstance(error, self.kind) else 1.0


def test_a_strategy_sees_the_error() -> None:
    assert delay_after(1, PatientWith(ConnectionError), ConnectionError()) == timedelta(minutes=1)
    assert delay_after(1, PatientWith(ConnectionError), ValueError()) == SECOND
    assert delay_after(1, PatientWith(ConnectionError)) == SECOND


class Constant(wait_base):
    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, retry_state: RetryCallState) -> float:
        return self.value


@pytest.mark.parametrize(
    ("answer", "delay"),
    [(-5, timedelta(0)), (float("inf"), YEARS), (1e300, YEARS), (float("nan"), timedelta(0))],
)
def test_a_strategy_that_answers_nonsense_does_no_harm(answer: float, delay: timedelta) -> None:
    assert delay_after(1, Constant(answer)) == delay


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"base": timedelta(0)}, "retry base must be longer than zero"),
        ({"multiplier": 0.5}, "retry multiplier must be at least 1, not 0.5"),
        ({"multiplier": float("nan")}, "retry multiplier must be finite, not nan"),
        ({"multiplier": float("inf")}, "retry multiplier must be finite, not inf"),
        ({"maximum": SECOND}, "retry maximum must not be shorter than its base"),
        ({"jitter": 1.1}, "retry jitter must lie between 0 and 1, not 1.1"),
        ({"jitter": float("nan")}, "retry jitter must lie between 0 and 1, not nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RetrySettings(**wrong)  # type: ignore[arg-type]


def refusing(wait: wait_base) -> Registry:
    """A kind that fails on a thread and one that fails as a program, each with this strategy."""
    registry = Registry()

    @registry.processor("thread", wait=wait)
    def fail(job: Job) -> None:
        raise ValueError("no stream")

    envelope = """echo '{"ok": false, "error_class": "ValueError", "message": "no stream"}'"""
    registry.processor("command", executor="command", command=["/bin/sh", "-c", envelope], wait=wait)(lambda job: None)
    return registry


@pytest.mark.parametrize("kind", ["thread", "command"])
def test_a_strategy_that_raises_is_no_reason_to_lose_what_went_wrong(url: str, db: Db, kind: str) -> None:
    class Broken(wait_base):
        def __call__(self, retry_state: RetryCallState) -> float:
            raise ZeroDivisionError("in the strategy")

    with working(url, refusing(Broken())) as (worker, _):
        waiting = until_status(db, put(db, kind), "RETRY_WAIT")
        assert worker.vitals().stuck == 0
    assert waiting.last_error == "ValueError: no stream"
    said = scalar(db, "SELECT message FROM job_log WHERE job_id = %s", waiting.id)
    assert said == "its wait strategy raised ZeroDivisionError: in the strategy: the default delay is used"


@pytest.mark.parametrize("kind", ["thread", "command"])
def test_a_strategy_that_looks_at_the_error_finds_one(url: str, db: Db, kind: str) -> None:
    with working(url, refusing(wait_exception(lambda error: 86400.0 if "no stream" in str(error) else 0.0))):
        waiting = until_status(db, put(db, kind), "RETRY_WAIT")
    assert waiting.next_retry_at > hence(hours=23)
    assert row(db, waiting.id).last_error == "ValueError: no stream"
