"""What commands print: sentences and lists for people, JSON for programs."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from snapapp.jobs.cli.tables import show_table, terminal_width, visible
from snapapp.jobs.errors import JobsError

T = TypeVar("T")
_BAR_FROM = 101  # jobs; fewer are done before anybody has read a progress bar
_FOLDED_FROM = 20  # lines of JSON that are shown of a long value


@contextmanager
def bar_of(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, for a terminal and many jobs. Call what it yields with how many more are done."""
    if total < _BAR_FROM:
        yield lambda _: None
        return
    from rich.console import Console  # imported here, because it is slow to import and few commands need it
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        yield partial(bar.advance, bar.add_task("", total=total))


def answer(arguments: Namespace, facts: Any, words: str) -> int:
    """Prints the result of a command that succeeded: words for people, facts for programs. Returns the exit code 0."""
    if arguments.json:
        show_json(facts)
    else:
        say(words)
    return 0


def answer_once(arguments: Namespace, facts: Any, words: str) -> int:
    """As `answer`, for a secret that is not shown again. Called within the transaction that makes it: where it cannot
    be written, as to a file on a full disk, this raises, and the old secret stays."""
    try:
        code = answer(arguments, facts, words)
        sys.stdout.flush()
    except OSError as error:
        raise JobsError(f"It cannot be shown, so nothing was changed: {error.strerror}") from error
    return code


def show_list(
    arguments: Namespace,
    entries: Sequence[T],
    headers: Sequence[str],
    line: Callable[[T], Sequence[str]],
    *,
    empty: str,
    **form: Any,
) -> int:
    """Prints a list: for people a table, or the sentence `empty` if there is no entry; for programs JSON."""
    if arguments.json:
        show_json(entries)
    elif entries:
        show_table(headers, [line(one) for one in entries], **form)
    else:
        say(empty)
    return 0


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=plain) + "\n")


def plain(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
    return str(value)


def say(text: str) -> None:
    sys.stdout.write(visible(text, keep="\n") + "\n")


def remark(text: str) -> None:
    """Prints a remark for people to stderr, so that it is not part of the output that a program may read."""
    sys.stderr.write(visible(text) + "\n")


def in_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def folded_json(value: Any) -> str:
    """JSON in one line if it fits the terminal, or if there is no terminal; else the first lines of indented JSON."""
    line, room = in_json(value), terminal_width()
    if room is None or len(line) <= room - 16:
        return line
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    shown = [one if len(one) <= 200 else f"{one[:199]}…" for one in lines[:_FOLDED_FROM]]
    more = f"{len(lines) - _FOLDED_FROM} more lines" if len(lines) > _FOLDED_FROM else ""
    if more or shown != lines:
        shown.append(f"… {more or 'and more'}: --json shows all")
    return "\n".join(shown)


def begun(sentence: str) -> str:
    """The sentence with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def first_line(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= 100 else f"{line[:99]}…"
