"""Functions that an application runs once in each process that runs its jobs: `on_start` before the first job,
`on_stop` after the last. A pool or a thread belongs here, because a module that declares processors is also imported
by programs that only enqueue:

    @on_start
    def open_pool() -> None: ...

    @on_stop
    def close_pool() -> None: ...

Each process runs the hooks of the modules that it has imported: a worker's process, and each of its children.
"""

import inspect
import threading
from collections.abc import Callable
from typing import TypeVar

Hook = Callable[[], object]
Complain = Callable[[str, BaseException], None]
H = TypeVar("H", bound=Hook)

_starts: dict[object, Hook] = {}  # by `_identity`
_stops: dict[object, Hook] = {}
_turn = threading.Lock()
_kept: set[int] = set()
stacks: int | None = None  # in a child: an open file for the stack that a kept process writes when it gets SIGURG
_callers: dict[int, str] = {}  # by id of a function that each process calls at an interval: the worker that calls it
_workers = 0  # how many workers run in this process: the first runs the start hooks, the last one the stop hooks


def on_start(hook: H) -> H:
    """Declares a start hook. They are called in the order of declaration; an error in one fails the start of the worker
    or of the child, and the stop hooks are called."""
    return _declare(_starts, hook)


def on_stop(hook: H) -> H:
    """Declares a stop hook. They are called in the opposite order when the process stops, but not when it is killed."""
    return _declare(_stops, hook)


def has_an_end() -> bool:
    return bool(_stops)


def keep(pid: int) -> None:
    """For children: says that a process started here serves later jobs too, so it is not killed when this job ends."""
    _kept.add(pid)


def forget(pid: int) -> None:
    """Says that a kept process has ended."""
    _kept.discard(pid)


def kept() -> list[int]:
    return sorted(_kept)


def start(complain: Complain) -> None:
    """Runs the start hooks when the first worker starts. If one raises, the stop hooks run: the worker may be started
    again, and would open a second time what is open."""
    global _workers
    with _turn:
        if _workers == 0:
            try:
                for hook in list(_starts.values()):
                    hook()
            except BaseException:
                _run_stop_hooks(complain)
                raise
        _workers += 1


def stop(complain: Complain) -> None:
    """Runs the stop hooks when the last worker stops."""
    global _workers
    with _turn:
        _workers -= 1
        if _workers == 0:
            _run_stop_hooks(complain)


def _run_stop_hooks(complain: Complain) -> None:
    """All of them, even if one raises."""
    for hook in reversed(list(_stops.values())):
        try:
            hook()
        except Exception as error:  # noqa: BLE001 - it is the application's, and may raise anything
            complain(_name(hook), error)


def may_call(function: Hook, worker: str) -> bool:
    """Does this worker call a function that each process calls at an interval? The worker that asks first does, until
    it leaves."""
    return _callers.setdefault(id(function), worker) == worker


def leave(worker: str) -> None:
    for function, caller in list(_callers.items()):
        if caller == worker:
            _callers.pop(function, None)


def _declare(hooks: dict[object, Hook], hook: H) -> H:
    if inspect.iscoroutinefunction(hook):
        raise ValueError(f"{_name(hook)}: a hook is a plain function, not `async def`, which nobody would await")
    hooks[_identity(hook)] = hook
    return hook


def _identity(hook: Hook) -> object:
    """What tells hooks apart. A module that is loaded twice declares its hooks twice, so the functions of a module have
    their name. A name says nothing of a lambda, a function within a function, a bound method or an object."""
    if inspect.isfunction(hook) and "<" not in hook.__qualname__:
        return _name(hook)
    return _name(hook), id(getattr(hook, "__self__", hook))


def _name(hook: Hook) -> str:
    return f"{hook.__module__}:{getattr(hook, '__qualname__', type(hook).__qualname__)}"
