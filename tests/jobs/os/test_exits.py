"""How our processes end."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.jobs.working import until


def left(code: str) -> subprocess.CompletedProcess[str]:
    program = "import os, sys, threading, time\nfrom snapapp.jobs.os import exits\n" + dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_what_was_said_is_read_and_what_was_to_be_tidied_is_tidied() -> None:
    ended = left("""
        import atexit
        atexit.register(print, "tidied")
        print("said", end=" ")
        exits.leave(3)
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "said tidied\n", "")


def test_objects_are_not_freed_one_by_one() -> None:
    ended = left("""
        class Told:
            def __del__(self):
                print("freed")
        kept = Told()
        exits.leave(0)
    """)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_a_thread_that_ends_soon_is_waited_for_and_one_that_never_does_is_named() -> None:
    ended = left("""
        threading.Thread(target=lambda: (time.sleep(0.2), print("ended"))).start()
        threading.Thread(target=time.sleep, args=[60], name="stuck").start()
        exits.leave(4)
    """)
    assert (ended.returncode, ended.stdout) == (4, "ended\n")
    assert ended.stderr == "Left without waiting for threads that do not end: stuck.\n"


def test_threads_of_a_pool_that_have_nothing_to_do_are_not_waited_for() -> None:
    ended = left("""
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        pool.submit(int).result()
        since = time.monotonic()
        import atexit
        atexit.register(lambda: print(time.monotonic() - since < 0.5))
        exits.leave(0)
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def test_a_pool_of_processes_that_a_thread_made_leaves_none_behind() -> None:
    """A job runs on a thread that is a daemon, and so the pool's own thread is one."""
    ended = left("""
        from concurrent.futures import ProcessPoolExecutor
        def job():
            global pool
            pool = ProcessPoolExecutor(2)
            print(pool.submit(os.getpid).result())
        thread = threading.Thread(target=job, daemon=True)
        thread.start()
        thread.join()
        exits.leave(0)
    """)
    assert (ended.returncode, ended.stderr) == (0, "")
    until_gone(int(ended.stdout))


@pytest.mark.parametrize(
    "leaves",
    ["multiprocessing.Process(target=time.sleep, args=[60]).start()", "ProcessPoolExecutor(1).submit(time.sleep, 60)"],
)
def test_processes_that_a_job_has_left_running_end_with_it(leaves: str) -> None:
    ended = left(f"""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        kept = {leaves}
        time.sleep(0.3)
        print(*(child.pid for child in multiprocessing.active_children()))
        exits.leave(0)
    """)
    assert ended.returncode == 0
    until_gone(int(ended.stdout))


def test_a_function_of_atexit_that_does_not_end_is_not_waited_for_for_ever() -> None:
    ended = left("""
        import atexit
        exits._LAST_FUNCTIONS = 0.2
        atexit.register(time.sleep, 60)
        exits.leave(6)
    """)
    assert ended.returncode == 6
    assert ended.stderr == "Left without waiting for functions of atexit that do not end.\n"


def until_gone(pid: int) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_stream_that_is_closed_keeps_nobody() -> None:
    ended = left("sys.stdout.close(); exits.leave(5)")
    assert (ended.returncode, ended.stderr) == (5, "")
