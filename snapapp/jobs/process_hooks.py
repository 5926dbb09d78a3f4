"""What an application does once in each process that runs its jobs: `on_start` before the first job, `on_stop` after
the last. Modules that declare processors are imported by children too, and by whoever only enqueues, so an import is no
place to open a pool or to start a thread. This is:

    @on_start
    def open_pool() -> None: ...

    @on_stop
    def close_pool() -> None: ...

Each process runs the hooks of the modules that it has imported: a worker's process, and each of its children.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

Hook = Callable[[], object]
H = TypeVar("H", bound=Hook)

_starts: dict[str, Hook] = {}  # by name, because a module that is loaded again declares the same again
_stops: dict[str, Hook] = {}
_turn = threading.Lock()
_kept: set[int] = set()
stacks: int | None = None  # an open file: what is kept may say there where it is, when it gets SIGURG. In children
_workers = 0  # that run in this process: the first one runs the hooks of the start, the last one those of the end


def on_start(hook: H) -> H:
    """Called in the order of the declarations. What it raises, the start of the worker or of the child raises."""
    _starts[_name(hook)] = hook
    return hook


def on_stop(hook: H) -> H:
    """Called in the opposite order, if the process ends by itself; one that is killed has no time for it."""
    _stops[_name(hook)] = hook
    return hook


def has_an_end() -> bool:
    return bool(_stops)


def keep(pid: int) -> None:
    """A process that was started here and serves later jobs too: a job has not left it behind. For children."""
    _kept.add(pid)


def forget(pid: int) -> None:
    """It has ended."""
    _kept.discard(pid)


def kept() -> list[int]:
    return sorted(_kept)


def start() -> None:
    global _workers
    with _turn:
        if _workers == 0:
            for hook in list(_starts.values()):
                hook()
        _workers += 1


def stop(complain: Callable[[str, BaseException], None]) -> None:
    """A hook that raises keeps no other from its turn."""
    global _workers
    with _turn:
        _workers -= 1
        if _workers:
            return
        for name, hook in reversed(list(_stops.items())):
            try:
                hook()
            except Exception as error:  # noqa: BLE001 - it is the application's, and may raise anything
                complain(name, error)


def _name(hook: Hook) -> str:
    return f"{hook.__module__}:{hook.__qualname__}"
