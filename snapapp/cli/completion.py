"""`snapapp completion`: writes a shell's completion script for our commands, options and choices, from the parsers."""

from argparse import SUPPRESS, Action, ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A command or option that can be typed at a place, and what it is for. `choices` are an option's values: None if
    the option takes no value, empty if any value may be typed."""

    text: str
    what: str
    choices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the command line, after the commands of `path`, and the words that can be typed there."""

    path: tuple[str, ...]
    commands: tuple[Word, ...]
    options: tuple[Word, ...]

    @property
    def at(self) -> str:
        return " ".join(self.path)


def script(shell: str, parser: ArgumentParser) -> str:
    return "".join(f"{line}\n" for line in SHELLS[shell](list(_places(parser, ()))))


def _places(parser: ArgumentParser, path: tuple[str, ...]) -> Iterator[Place]:
    inner: list[_SubParsersAction[ArgumentParser]] = []
    commands: list[Word] = []
    options: list[Word] = []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            inner.append(action)
            commands += [Word(one.dest, one.help or "") for one in action._choices_actions]
        elif action.option_strings:
            options.append(_option(action))
        else:
            commands += [Word(str(choice), "") for choice in action.choices or ()]
    yield Place(path, tuple(commands), tuple(options))
    for action in inner:
        for name, below in action.choices.items():
            yield from _places(below, (*path, name))


def _option(action: Action) -> Word:
    what = "" if action.help in (None, SUPPRESS) else str(action.help)
    takes_value = action.nargs != 0
    return Word(action.option_strings[-1], what, tuple(map(str, action.choices or ())) if takes_value else None)


def _values(places: list[Place]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The patterns of options that take a value, with their choices. One last pattern has all options that take any
    value."""
    free = []
    for place in places:
        for one in place.options:
            if one.choices:
                yield f'"{place.at} {one.text}"', one.choices
            elif one.choices is not None:
                free.append(f'"{place.at} {one.text}"')
    yield "|".join(free), ()


def _bash(places: list[Place]) -> Iterator[str]:
    yield "# bash completion of snapapp"
    yield "_snapapp() {"
    yield '    local IFS=$\' \\t\\n\' at="" words="" word current="${COMP_WORDS[COMP_CWORD]}"'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f'        case "$at $word" in {_paths(places)}) at="${{at:+$at }}$word" ;; esac'
    yield "    done"
    yield '    case "$at ${COMP_WORDS[COMP_CWORD-1]}" in'
    for pattern, choices in _values(places):
        yield f'        {pattern}) words="{" ".join(choices)}" ;;'
    yield '        *) case "$at" in'
    for place in places:
        words = [one.text for one in (*place.commands, *place.options)]
        yield f'            "{place.at}") words="{" ".join(words)}" ;;'
    yield "        esac ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _snapapp snapapp"


def _paths(places: list[Place]) -> str:
    """A shell pattern of every command with the commands before it, such as `jobs list`."""
    return "|".join(f'"{" ".join(place.path[:-1])} {place.path[-1]}"' for place in places if place.path)


def _zsh(places: list[Place]) -> Iterator[str]:
    yield "#compdef snapapp"
    yield "_snapapp() {"
    yield '    local at="" word'
    yield "    local -a found"
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield f'        case "$at $word" in ({_paths(places)}) at="${{at:+$at }}$word" ;; esac'
    yield "    done"
    yield '    case "$at ${words[CURRENT-1]}" in'
    for pattern, choices in _values(places):
        yield f"        ({pattern}) found=({' '.join(choices)}) ;;"
    yield '        (*) case "$at" in'
    for place in places:
        words = [_quoted(f"{one.text}:{one.what}") for one in (*place.commands, *place.options)]
        yield f'            ("{place.at}") found=({" ".join(words)}) ;;'
    yield "        esac ;;"
    yield "    esac"
    yield "    _describe snapapp found || _files"
    yield "}"
    yield "# from a folder of $fpath it is called at once, sourced it is declared"
    yield 'if [ "$funcstack[1]" = _snapapp ]; then'
    yield '    _snapapp "$@"'
    yield "else"
    yield "    compdef _snapapp snapapp"
    yield "fi"


def _fish(places: list[Place]) -> Iterator[str]:
    yield "# fish completion of snapapp"
    for place in places:
        seen = [f"__fish_seen_subcommand_from {name}" for name in place.path]
        names = " ".join(one.text for one in place.commands)
        unseen = [f"not __fish_seen_subcommand_from {names}"] if place.path and names else []
        at = "; and ".join([*seen, *unseen]) or "__fish_use_subcommand"
        for one in place.commands:
            yield f"complete -c snapapp -f -n {_quoted(at)} -a {one.text} -d {_quoted(one.what)}"
        at = "; and ".join(seen) or "__fish_use_subcommand"
        for one in place.options:
            value = "" if one.choices is None else f" -x -a {_quoted(' '.join(one.choices))}" if one.choices else " -r"
            yield f"complete -c snapapp -n {_quoted(at)} -l {one.text[2:]}{value} -d {_quoted(one.what)}"


def _quoted(text: str) -> str:
    quoted = text.replace("'", "’")  # the three shells escape a straight quote in three ways
    return f"'{quoted}'"


SHELLS: dict[str, Callable[[list[Place]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
