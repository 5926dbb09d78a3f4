"""A late event loop is seen, and the worker beside it pauses: promise 10."""

import asyncio
import threading
from time import monotonic

from snapapp.jobs.worker.capacity.web_priority import WebPriority
from snapapp.process.loop_lag import MARK, Lag
from tests.jobs.working import until


def expecting_requests() -> WebPriority:
    web_priority = WebPriority(patience=0.05)
    web_priority.arrive()
    web_priority.depart()
    return web_priority


def waits(web_priority: WebPriority) -> float:
    began = monotonic()
    web_priority.give_way()
    return monotonic() - began


def test_a_loop_that_is_kept_waiting_is_seen() -> None:
    async def blocked() -> Lag:
        with Lag(WebPriority()) as lag:
            await asyncio.sleep(0)
            until_later = monotonic() + 0.25
            while monotonic() < until_later:
                pass  # on the loop's thread, as a route that blocks would
            while not lag.lately().longest:
                await asyncio.sleep(0.01)
            return lag

    assert asyncio.run(blocked()).lately().longest > 0.1


def test_a_late_loop_makes_the_worker_pause_and_a_punctual_one_does_not() -> None:
    web_priority = expecting_requests()
    lag = Lag(web_priority)
    assert (lag.note(MARK / 2), web_priority._pressed_until) == (0, None)
    assert (lag.note(0.1), web_priority._pressed_until is None) == (0.1, False)
    assert waits(web_priority) >= 0.04
    assert lag.presses == 1


def test_the_next_look_ends_a_pause_whose_time_is_over() -> None:
    web_priority = expecting_requests()
    web_priority.press(0)
    Lag(web_priority).note(0)
    assert web_priority._pressed_until is None


def test_a_pause_is_as_long_as_the_loop_was_late_and_ends_by_itself() -> None:
    async def pressed() -> bool:
        web_priority = expecting_requests()
        web_priority.press(0.05)
        with Lag(web_priority):
            while web_priority._pressed_until is not None:
                await asyncio.sleep(0.01)
        return waits(web_priority) < 0.02

    assert asyncio.run(asyncio.wait_for(pressed(), 10))
    assert Lag(expecting_requests()).note(60) == 0.25


def test_nobody_pauses_for_requests_that_do_not_come() -> None:
    web_priority = WebPriority()
    web_priority.press(10)
    assert web_priority._pressed_until is None


def test_a_request_that_is_answered_does_not_end_a_pause_nor_the_pause_a_request() -> None:
    web_priority = WebPriority(patience=0.03)
    web_priority.arrive()
    web_priority.press(0)
    web_priority.depart()
    assert waits(web_priority) >= 0.02
    web_priority.arrive()
    web_priority.ease()
    assert web_priority._pressed_until is None
    assert waits(web_priority) >= 0.02
    web_priority.depart()
    assert waits(web_priority) < 0.02


def test_a_pause_never_stops_the_queue() -> None:
    """Each wait ends after the web_priority's patience, whoever forgets to end the pause."""
    web_priority = expecting_requests()
    web_priority.press(3600)
    done = threading.Event()

    def pass_by() -> None:
        web_priority.give_way()
        done.set()

    threading.Thread(target=pass_by, daemon=True).start()
    assert done.wait(10)
    assert web_priority.share() == 0.0


def test_the_latest_of_the_last_minute_is_remembered_and_no_longer() -> None:
    lag = Lag(WebPriority())
    lag.note(0.015)
    for _ in range(599):
        lag.note(0.001)
    assert lag.lately() == (0.001, 0.015)
    lag.note(0.001)
    until(lambda: lag.lately() == (0.001, 0.001))
