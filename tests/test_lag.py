"""A late event loop is seen, and the worker beside it pauses: promise 10."""

import asyncio
import threading
from time import monotonic

from snapapp.jobs.courtesy import Courtesy
from snapapp.lag import MARK, Lag
from tests.jobs.working import until


def expecting_guests() -> Courtesy:
    courtesy = Courtesy(patience=0.05)
    courtesy.arrive()
    courtesy.depart()
    return courtesy


def waits(courtesy: Courtesy) -> float:
    began = monotonic()
    courtesy.give_way()
    return monotonic() - began


def test_a_loop_that_is_kept_waiting_is_seen() -> None:
    async def blocked() -> Lag:
        with Lag(Courtesy()) as lag:
            await asyncio.sleep(0)
            until_later = monotonic() + 0.25
            while monotonic() < until_later:
                pass  # on the loop's thread, as a route that blocks would
            while not lag.lately().longest:
                await asyncio.sleep(0.01)
            return lag

    assert asyncio.run(blocked()).lately().longest > 0.1


def test_a_late_loop_makes_the_worker_pause_and_a_punctual_one_does_not() -> None:
    courtesy = expecting_guests()
    lag = Lag(courtesy)
    assert (lag.note(MARK / 2), courtesy.is_pressed) == (0, False)
    assert (lag.note(0.1), courtesy.is_pressed) == (0.1, True)
    assert waits(courtesy) >= 0.04
    assert lag.presses == 1


def test_the_next_look_ends_a_pause_whose_time_is_over() -> None:
    courtesy = expecting_guests()
    courtesy.press(0)
    Lag(courtesy).note(0)
    assert not courtesy.is_pressed


def test_a_pause_is_as_long_as_the_loop_was_late_and_ends_by_itself() -> None:
    async def pressed() -> bool:
        courtesy = expecting_guests()
        courtesy.press(0.05)
        with Lag(courtesy):
            while courtesy.is_pressed:
                await asyncio.sleep(0.01)
        return waits(courtesy) < 0.02

    assert asyncio.run(asyncio.wait_for(pressed(), 10))
    assert Lag(expecting_guests()).note(60) == 0.25


def test_nobody_pauses_for_guests_who_do_not_come() -> None:
    courtesy = Courtesy()
    courtesy.press(10)
    assert not courtesy.is_pressed


def test_a_guest_who_leaves_does_not_end_a_pause_nor_the_pause_a_guests_welcome() -> None:
    courtesy = Courtesy(patience=0.03)
    courtesy.arrive()
    courtesy.press(0)
    courtesy.depart()
    assert waits(courtesy) >= 0.02
    courtesy.arrive()
    courtesy.ease()
    assert not courtesy.is_pressed
    assert waits(courtesy) >= 0.02
    courtesy.depart()
    assert waits(courtesy) < 0.02


def test_a_pause_never_stops_the_queue() -> None:
    """Each wait ends after the courtesy's patience, whoever forgets to end the pause."""
    courtesy = expecting_guests()
    courtesy.press(3600)
    done = threading.Event()

    def pass_by() -> None:
        courtesy.give_way()
        done.set()

    threading.Thread(target=pass_by, daemon=True).start()
    assert done.wait(10)
    assert courtesy.share() == 0.0


def test_the_latest_of_the_last_minute_is_remembered_and_no_longer() -> None:
    lag = Lag(Courtesy())
    lag.note(0.015)
    for _ in range(599):
        lag.note(0.001)
    assert lag.lately() == (0.001, 0.015)
    lag.note(0.001)
    until(lambda: lag.lately() == (0.001, 0.001))
