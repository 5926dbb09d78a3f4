"""The late report (in docs and log lines: the black box): when four fifths of an attempt's time have passed, what it is
doing is written to its log, once. After its end it is too late to look."""

import os
import sys
import threading
import traceback
from asyncio import Task
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from time import monotonic
from types import FrameType
from typing import Any

from snapapp.jobs.model import TEXT_CAP, Job, clean

_PART = 0.8  # of the time limit, after which a report is written
_FRAMES = 50  # innermost calls in a report
# plain strings, because they are compared with the file names in stack frames
_OURS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, threading.__file__)  # noqa: PTH120


def opens_at(job: Job) -> float:
    """The time (monotonic) of the job's report: its soft deadline."""
    began, deadline = job.started_at or 0.0, job.deadline or float("inf")
    return began + _PART * (deadline - began)


def put_down(job: Job, what: str, words: str) -> None:
    """Writes one log line, also for a job that has used up its lines: it bypasses Job.log."""
    if job.channel and job.started_at is not None and job.deadline is not None:
        passed, limit = monotonic() - job.started_at, job.deadline - job.started_at
        header = f"black box, after {passed:.1f} s of {limit:g} s: {what}\n"
        job.channel.log(job, "WARNING", header + clean(words, TEXT_CAP - len(header)))


# --- where in Python --------------------------------------------------------------------------------------------


def of_thread(ident: int) -> str:
    """The calls that a thread is in, the innermost last. It works for a thread in C if that released the GIL."""
    frame = sys._current_frames().get(ident)
    return _stack_text(reversed([*traceback.walk_stack(frame)])) if frame else "its thread has ended"


def of_task(task: Task[Any], loop_thread: int) -> str:
    """The awaits that a task is in, the innermost last. If the task blocks its loop, the calls of the loop's thread."""
    coroutine = task.get_coro()
    if getattr(coroutine, "cr_running", False):
        return f"it keeps its event loop from everything else\n{of_thread(loop_thread)}"
    waits_for = f"waiting for {clean(repr(getattr(task, '_fut_waiter', None)), 300)}\n"
    return _stack_text((frame, frame.f_lineno) for frame in _awaits(coroutine)) + waits_for


def _awaits(awaited: object) -> Iterator[FrameType]:
    """The frames from the outermost coroutine to the innermost."""
    while (frame := _first_attribute(awaited, "cr_frame", "gi_frame", "ag_frame")) is not None:
        yield frame
        awaited = _first_attribute(awaited, "cr_await", "gi_yieldfrom", "ag_await")


def _first_attribute(owner: object, *names: str) -> Any:
    return next((value for name in names if (value := getattr(owner, name, None)) is not None), None)


def _stack_text(calls: Iterable[tuple[FrameType, int]]) -> str:
    """Formats calls, without our own ones that lead to the job's first call."""
    all_calls = [*calls]
    job_calls = [*dropwhile(lambda call: call[0].f_code.co_filename.startswith(_OURS), all_calls)] or all_calls
    summary = traceback.StackSummary.extract(iter(job_calls[-_FRAMES:]), lookup_lines=True)
    return clean("".join(summary.format()), TEXT_CAP - 400, keep="end")


def of_dump(dump: str) -> str:
    """Formats what faulthandler wrote in a child: the job's thread first; in each thread the innermost call first."""
    threads = [*filter(None, (_without_ours(block) for block in dump.strip().split("\n\n")))]
    return "\n".join(sorted(threads, key=lambda block: not block.startswith("in its main thread")))


def _without_ours(block: str) -> str:
    head, *calls = block.splitlines()
    of_job = [call for call in calls if not any(mark in call for mark in ("<frozen runpy>", f'"{_OURS[0]}executors'))]
    head = "in another thread" if len(of_job) == len(calls) else "in its main thread"
    return "\n".join([f"{head}, the innermost call first:", *of_job, ""])
