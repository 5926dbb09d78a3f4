"""docs/operate/troubleshooting.md: what the doctor can find, read from its checks in the code, so that the page and the
doctor never say two things."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import EnumMeta
from typing import Any

from snapapp.backup import judgement
from snapapp.jobs.doctor import CHECKS, examination, fleet, held_up, server, tables, work
from snapapp.processing import bucket_check, compute_check, disk_check
from snapapp.processing.decoder import check
from tests import ROOT

PAGE = ROOT / "docs" / "operate" / "troubleshooting.md"
MODULES = (server, tables, work, held_up, fleet, examination, judgement, check, compute_check, disk_check, bucket_check)
_OR = "\0"  # between the keys of a table that a loop goes through

# Which component each check looks at, in the order in which somebody looks who has been woken.
COMPONENTS = {
    "Workers": ("workers", "listen", "kinds", "stuck", "slots", "suspects"),
    "Queues and jobs": ("queues", "limits", "repeated", "dead", "invariants"),
    "Schedules": ("schedules",),
    "The fleet": ("fleet",),
    "PostgreSQL: what it runs on": ("schema", "settings", "connections", "clock", "disk", "numbers"),
    "PostgreSQL: what it refuses": ("rights", "sequences"),
    "PostgreSQL: what slows it": ("xmin", "locks", "tables", "indexes", "cost"),
    "Backups": ("backups",),
    "Decoders": ("decoders",),
    "The disk of SNAPAPP_DATA_DIR": ("data_disk",),
    "The bucket": ("bucket",),
    "The cluster": ("compute",),
    "The doctor itself": ("any",),
}
_WITHOUT_A_CHECK = {
    "examination": "any",
    "judgement": "backups",
    "check": "decoders",
    "compute_check": "compute",
    "disk_check": "data_disk",
    "bucket_check": "bucket",
}
_HEAD = """\
# Troubleshooting

<!-- Made by `make docs` from the checks of the doctor in snapapp/, the queue's and the product's; do not edit. -->

`snapapp doctor` says all this by itself, with its numbers, the worst first: type it before you read on. Below is
everything that it can find, component by component: how it shows, why it matters, what to do, and what to type. `…`
stands for what it fills in. `snapapp doctor --only NAME` looks at one check, `--fix` does what is safe
([doctor.md](../doctor.md)). `snapapp jobs explain ID` says of one job why it is where it is. What to watch before it
comes so far: [monitoring.md](monitoring.md).

"""


@dataclass(frozen=True, slots=True)
class Trouble:
    check: str
    id: str
    saw: str
    why: str
    do: str
    paste: str
    has_remedy: bool


def troubles() -> Iterator[Trouble]:
    """Every Finding in the code that is not that all is well: one that says what to do."""
    for module in MODULES:
        tree = ast.parse(inspect.getsource(module))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for call in _calls(function, ("Finding", "Trouble")):
                has_remedy = any(its.arg == "remedy" for its in call.keywords)
                for said in _ways_to_say(call, function, functions, vars(module)):
                    if said["do"] or said["why"]:
                        check = _check_of(module.__name__.rpartition(".")[2], function.name, tree)
                        yield Trouble(check, **said, has_remedy=has_remedy)


def _ways_to_say(
    call: ast.Call, function: ast.FunctionDef, functions: list[ast.FunctionDef], texts: Mapping[str, Any]
) -> Iterator[dict[str, str]]:
    """Once; or once for each call of the function, where what it says is what it is given."""
    scopes = [Scope(texts, function, {})]
    given = {argument.arg for argument in function.args.args} & _names_in(call)
    said = _said(call, scopes[0])
    if "…" in said["id"] or said["do"] == "…" or given >= {"why"}:
        callers = [(caller, each) for caller in functions for each in _calls(caller, (function.name,))]
        ways = [way for caller, each in callers for way in _arguments(each, function, Scope(texts, caller, {}))]
        scopes = [Scope(texts, function, way) for way in ways]
    yield from {tuple(said.items()): said for said in (_said(call, scope) for scope in scopes)}.values()


def _said(call: ast.Call, scope: "Scope") -> dict[str, str]:
    by_name = {its.arg: its.value for its in call.keywords}
    return {name: scope.text(by_name[name]) if name in by_name else "" for name in ("id", "saw", "why", "do", "paste")}


def _arguments(call: ast.Call, function: ast.FunctionDef, scope: "Scope") -> Iterator[dict[str, str]]:
    """What it is given; where a loop goes through a table, once for each of its keys."""
    names = [argument.arg for argument in function.args.args]
    given = dict(zip(names, call.args, strict=False)) | {its.arg: its.value for its in call.keywords if its.arg}
    texts = {name: scope.text(value, before=call.lineno) for name, value in given.items()}
    for turn in range(max(len(text.split(_OR)) for text in texts.values())):
        yield {name: text.split(_OR)[turn % len(text.split(_OR))] for name, text in texts.items()}


def _calls(function: ast.FunctionDef, names: tuple[str, ...]) -> list[ast.Call]:
    found = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return [call for call in found if isinstance(call.func, ast.Name) and call.func.id in names]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a text stands: what it may name."""

    texts: Mapping[str, Any]  # of the module
    function: ast.FunctionDef
    given: dict[str, str]

    def text(self, node: ast.expr, *, before: int | None = None) -> str:
        """What is written there, with … for what is only known when it happens."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Constant(value=None):
                return ""
            case ast.JoinedStr(values=parts):
                return "".join("…" if _is_either(part) else self.text(part, before=before) for part in parts)
            case ast.FormattedValue(value=value):
                return self.text(value, before=before)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return self.text(left, before=before) + self.text(right, before=before)
            case ast.IfExp(test=ast.Compare(left=ast.Name(id=name), comparators=[ast.Constant(value=str(wanted))])) if (
                name in self.given or self._default(name)
            ):
                is_so = self.text(node.test.left) == wanted  # type: ignore[attr-defined]
                return self.text(node.body if is_so else node.orelse, before=before)
            case ast.IfExp(body=body, orelse=orelse):
                return _either([self.text(body, before=before), self.text(orelse, before=before)])
            case ast.Attribute(value=ast.Name(id=name), attr=member) if isinstance(self.texts.get(name), EnumMeta):
                return str(self.texts[name][member].value)
            case ast.Attribute(value=value, attr="value"):
                return self.text(value, before=before)
            case ast.Call(func=ast.Attribute(value=value, attr="upper")):
                return self.text(value, before=before).upper()
            case ast.Call(func=ast.Name(id="counted"), args=[_, _, ast.Constant(value=str(many))]):
                return f"… {many}"
            case ast.Name(id=name):
                return self.given.get(name) or self._named(name, before) or "…"
        return "…"

    def _named(self, name: str, before: int | None) -> str:
        found = self._assigned(name, before)
        text = self.texts.get(name)
        return (
            (found[-1] if before and found else _either(found))
            or self._looped(name)
            or (text if isinstance(text, str) else self._default(name))
        )

    def _assigned(self, name: str, before: int | None) -> list[str]:
        found: list[str] = []
        nodes = [node for node in ast.walk(self.function) if isinstance(node, ast.Assign | ast.AugAssign)]
        for node in sorted(nodes, key=lambda node: node.lineno):
            if before and node.lineno > before:
                break
            match node:
                case ast.Assign(targets=[ast.Name(id=its)], value=value) if its == name:
                    found.append(self.text(value))
                case ast.AugAssign(target=ast.Name(id=its), value=value) if its == name and found:
                    found[-1] += self.text(value)
        return found

    def _looped(self, name: str) -> str:
        """The keys of a table that a loop goes through, or what stands in one place of its values."""
        for node in ast.walk(self.function):
            match node:
                case ast.For(
                    target=ast.Tuple(elts=[ast.Name(id=key), value]),
                    iter=ast.Call(func=ast.Attribute(value=ast.Name(id=table))),
                ):
                    its = [each.id for each in getattr(value, "elts", []) if isinstance(each, ast.Name)]
                    if name == key:
                        return _OR.join(self.texts[table])
                    if name in its:
                        return _OR.join(each[its.index(name)] for each in self.texts[table].values())
        return ""

    def _default(self, name: str) -> str:
        arguments = self.function.args
        defaults = dict(zip([each.arg for each in arguments.args][::-1], arguments.defaults[::-1], strict=False))
        return self.text(defaults[name]) if name in defaults else ""


def _is_either(node: ast.expr) -> bool:
    return isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.IfExp)


def _either(texts: list[str]) -> str:
    return " / ".join(dict.fromkeys(text for text in texts if text.strip(" .…")))


def _check_of(module: str, function: str, tree: ast.Module) -> str:
    """The check whose function it is, or that calls it, however far down."""
    if module in _WITHOUT_A_CHECK:
        return _WITHOUT_A_CHECK[module]
    checks = {check.__name__: name for name, check in CHECKS.items() if check.__module__.endswith(f".{module}")}
    wanted = {function}
    while not wanted & checks.keys():
        callers = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _names_in(node) & wanted}
        assert callers - wanted, f"no check calls {function} in {module}"
        wanted |= callers
    return checks[min(wanted & checks.keys())]


def _names_in(node: ast.AST) -> set[str]:
    return {its.id for its in ast.walk(node) if isinstance(its, ast.Name)}


def document() -> str:
    known = list(troubles())
    return _HEAD + "\n".join(
        _chapter(title, [each for name in checks for each in known if each.check == name])
        for title, checks in COMPONENTS.items()
    )


def _chapter(title: str, known: list[Trouble]) -> str:
    return "\n".join([f"## {title}", "", *map(_told, known)])


def _told(its: Trouble) -> str:
    lines = [f"### {_plain(its.id)}", "", f"Shows as (`{its.check}`): {_plain(its.saw)}", ""]
    lines += [f"{each}\n" for each in (_plain(its.why), _plain(its.do)) if each.strip("…")]
    commands = [_plain(line) for line in its.paste.split(" / ") if line.strip("…")]
    commands += [f"snapapp doctor --fix --only {its.check}"] * its.has_remedy
    lines += [f"    {line}" for line in dict.fromkeys(commands)] + ([""] if commands else [])
    return "\n".join(lines)


def _plain(text: str) -> str:
    return re.sub(r"(… ?)+", lambda found: "… " if found[0].endswith(" ") else "…", text).replace("<", "&lt;").strip()


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
