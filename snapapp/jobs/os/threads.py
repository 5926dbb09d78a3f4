"""Threads: a call that may hang for ever, in one that nobody has to wait for; and a chance for one to begin."""

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from time import sleep
from typing import Any, TypeVar

T = TypeVar("T")

_A_MOMENT = 0.00005  # seconds; the kernel makes it a tenth of a millisecond


def let_it_begin() -> None:
    """For a thread that has just been given something to do: it would begin only when this one, which has the
    interpreter's lock, waits for something."""
    sleep(_A_MOMENT)


def in_a_thread(name: str, act: Callable[..., T], *arguments: Any) -> Future[T]:
    """The call's answer, when it comes. A process that ends does not wait for the thread."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # else who stops waiting would cancel it, and nobody could set it
    Thread(target=copy_context().run, args=(_run, answer, act, *arguments), name=name, daemon=True).start()
    return answer


def _run(answer: Future[T], act: Callable[..., T], *arguments: Any) -> None:
    try:
        answer.set_result(act(*arguments))
    except BaseException as error:  # noqa: BLE001 - whoever asks for the answer raises it
        answer.set_exception(error)
