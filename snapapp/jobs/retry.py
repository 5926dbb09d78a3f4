"""How long to wait before a retry. The strategies are tenacity's, used as pure functions from attempt to delay."""

import random
from datetime import timedelta

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random_exponential
from tenacity.wait import wait_base

from snapapp.jobs.settings import RetrySettings


class wait_spread(wait_base):  # noqa: N801 - named as tenacity names its strategies
    """Exponential backoff spread by jitter: never shorter than the plain delay, never longer than the maximum."""

    def __init__(self, settings: RetrySettings) -> None:
        self._jitter = settings.jitter
        self._plain = wait_exponential(
            multiplier=settings.base.total_seconds(),
            exp_base=settings.multiplier,
            # Leave room for the jitter below the maximum; otherwise all late retries would wait exactly the maximum.
            max=max(settings.maximum.total_seconds() / (1 + settings.jitter), settings.base.total_seconds()),
        )
        self._maximum = settings.maximum.total_seconds()

    def __call__(self, retry_state: RetryCallState) -> float:
        delay = self._plain(retry_state) * (1 + self._jitter * random.random())  # noqa: S311 - spreads load only
        return min(delay, self._maximum)


def delay_after(attempt: int, wait: wait_base, error: BaseException | None = None) -> timedelta:
    """How long to wait after this failed attempt (1 is the first), by any of tenacity's wait strategies."""
    state = _state(attempt)
    if error is not None:
        state.set_exception((type(error), error, error.__traceback__))
    return timedelta(seconds=max(0.0, min(float(wait(state)), 10 * 365 * 86400.0)))


_BACKOFF = wait_random_exponential(multiplier=0.05, max=2)  # short, because a restarted server is back within a second


def pause_after(failures: int) -> float:
    """Seconds before connecting to an unreachable database again: longer each time, and random, so that the workers do
    not all come at once."""
    return max(0.05, float(_BACKOFF(_state(min(failures, 10)))))


def _state(attempt: int) -> RetryCallState:
    state = RetryCallState(retry_object=Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return state
