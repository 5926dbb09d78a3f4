"""Kind -> processor."""

import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed

from snapapp.jobs import Worker
from snapapp.jobs.errors import DuplicateProcessor, UnknownKind
from snapapp.jobs.model import Job
from snapapp.jobs.registry import Processor, Registry, load
from snapapp.jobs.schedules.slots import InvalidSchedule


def run(job: Job) -> None: ...


def run_differently(job: Job) -> None: ...


async def run_soon(job: Job) -> None: ...


def test_two_lambdas_of_one_kind_are_refused() -> None:
    """The second one replaced the first without a word: both are called <lambda>."""
    registry = Registry()
    registry.processor("test")(lambda job: 1)
    with pytest.raises(DuplicateProcessor, match=r"<lambda> in line \d+ and \S+<lambda> in line \d+"):
        registry.processor("test")(lambda job: 2)


def test_a_schedule_of_a_partial_asks_for_its_name() -> None:
    registry = Registry()
    with pytest.raises(InvalidSchedule, match=r"functools.partial\(.+\) has no name of its own: give .* with name="):
        registry.scheduled(every=timedelta(minutes=1))(partial(run))
    registry.scheduled(every=timedelta(minutes=1), name="nightly")(partial(run))


def test_a_declared_function_stays_what_it_is() -> None:
    """W7, W51."""
    registry = Registry()
    assert registry.processor("test")(run) is run
    assert registry.get("test") == Processor(kind="test", function=run)


def test_a_processor_keeps_all_that_was_declared() -> None:
    registry = Registry()
    wait = wait_fixed(1)
    given = {"queue": "media", "timeout": timedelta(seconds=9), "max_attempts": 5, "wait": wait}
    registry.processor("test", executor="process", **given)(run)  # type: ignore[arg-type]
    found = registry.get("test")
    assert {name: getattr(found, name) for name in given} == given
    assert found.executor == "process"


def test_async_functions_run_on_the_loop_and_others_in_threads() -> None:
    registry = Registry()
    registry.processor("plain")(run)
    registry.processor("soon")(run_soon)
    assert [one.executor for one in registry] == ["thread", "async"]


class Sender:
    async def __call__(self, job: Job) -> None: ...


def test_an_object_runs_as_its_call_does_and_two_of_a_kind_are_told_apart() -> None:
    registry = Registry()
    sender = Sender()
    for function in (sender, sender):
        registry.processor("sent")(function)
    assert registry.get("sent").executor == "async"
    for other in (Sender(), partial(run)):
        with pytest.raises(DuplicateProcessor, match="two processors are declared for the kind 'sent'"):
            registry.processor("sent")(other)


@pytest.mark.parametrize(("function", "executor"), [(run, "async"), (run_soon, "thread"), (run_soon, "process")])
def test_an_executor_that_does_not_fit_is_refused(function: object, executor: str) -> None:
    with pytest.raises(ValueError, match=f"test: `async def` and the executor '{executor}' do not go together"):
        Registry().processor("test", executor=executor)(function)  # type: ignore[arg-type, type-var]


class Shrinker:
    def shrink(self, job: Job) -> None: ...

    @classmethod
    def shrink_all(cls, job: Job) -> None: ...


def test_a_child_process_needs_a_function_that_it_can_import() -> None:
    def inner(job: Job) -> None: ...

    unnamed: list[Callable[[Job], None]] = [inner, lambda job: None, partial(run), Shrinker().shrink]
    for function in unnamed:
        with pytest.raises(ValueError, match="a child process can only import a function at the top of a module"):
            Registry().processor("test", executor="process")(function)
    Registry().processor("test", executor="process")(Shrinker.shrink_all)


def test_a_worker_of_a_script_says_that_children_cannot_import_the_scripts_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its jobs would fail: in a child, __main__ is another module."""
    registry = Registry()
    registry.processor("test", executor="process")(run)
    Worker("postgresql:///nowhere", registry=registry)
    monkeypatch.setattr(run, "__module__", "__main__")
    with pytest.raises(ValueError, match="test: a child process cannot import __main__:run: declare the kind in a mod"):
        Worker("postgresql:///nowhere", registry=registry)


def test_two_processors_for_one_kind_are_refused_by_name() -> None:
    registry = Registry()
    registry.processor("test")(run)
    with pytest.raises(DuplicateProcessor, match=r"'test': \S+:run and \S+:run_differently"):
        registry.processor("test")(run_differently)
    assert registry.get("test").function is run


def test_importing_a_module_twice_declares_its_processors_once() -> None:
    registry = Registry()
    for _ in range(2):
        registry.processor("test")(run)
    assert len(registry) == 1


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownKind, match="no processor is declared for the kind 'nobody'"):
        Registry().get("nobody")


def test_a_registry_tells_what_it_knows() -> None:
    registry = Registry()
    for kind in ("b", "a"):
        registry.processor(kind)(run)
    assert registry.kinds() == ("a", "b")
    assert ("a" in registry, "c" in registry, len(registry)) == (True, False, 2)


def test_a_processor_says_where_a_child_finds_it() -> None:
    assert Processor(kind="test", function=run).path == f"{__name__}:run"


def test_modules_are_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loaded_by_name.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    load(("loaded_by_name",))
    assert sys.modules.pop("loaded_by_name").loaded
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load(("no_such_module",))


def test_a_processor_cannot_be_changed() -> None:
    change = partial(setattr, Processor(kind="test", function=run), "kind")
    with pytest.raises(AttributeError):
        change("other")


def test_a_command_keeps_its_program_and_its_memory_limit() -> None:
    registry = Registry()
    registry.processor("test", executor="command", command=["prog", "arg"], memory_mb=64)(run)
    found = registry.get("test")
    assert (found.executor, found.command, found.memory_mb) == ("command", ("prog", "arg"), 64)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"command": ["prog"]}, "test: the executor 'thread' runs no command"),
        ({"executor": "process", "command": ["prog"]}, "test: the executor 'process' runs no command"),
        ({"executor": "command", "command": "prog arg"}, "test: a command is a list of texts"),
        ({"executor": "command", "command": ["prog", 1]}, "test: a command is a list of texts"),
        ({"memory_mb": 64}, "test: only what runs in a process of its own has a memory limit"),
        ({"executor": "process", "memory_mb": -1}, "test: a memory limit must not be negative: -1"),
    ],
)
def test_options_that_do_not_go_with_the_executor_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Registry().processor("test", **options)(run)


def on_two_cores(_job: Job) -> None: ...


def test_a_schedule_takes_what_a_kind_does() -> None:
    registry = Registry()
    registry.scheduled(every=timedelta(hours=1), name="hourly", executor="process", cores=2, memory_mb=64)(on_two_cores)
    its = registry.get("hourly")
    assert (its.executor, its.cores, its.memory_mb) == ("process", 2, 64)
    with pytest.raises(TypeError, match="retries"):
        registry.processor("any", retries=3)(on_two_cores)  # type: ignore[call-arg]
