"""docs/images/: which package imports which, drawn from the imports themselves. `make docs` writes the pictures, and a
test compares. An arrow that follows from two others is left out; what a package imports stands below it."""

from collections.abc import Iterator, Mapping
from html import escape
from itertools import pairwise

import grimp

from tests import ROOT

FOLDER = ROOT / "docs" / "images"
PICTURES = {"packages.svg": "snapapp", "jobs.svg": "snapapp.jobs"}
_LEFT_OUT = {"snapapp.__main__", "snapapp.bench"}  # they are beside the application

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 112, 30, 136, 74, 14
_BEND = 44  # what an arrow takes where it passes a row

Imports = Mapping[str, set[str]]


def document(root: str) -> str:
    return _drawn(_reduced(_imports(root)))


def _imports(root: str) -> Imports:
    graph = grimp.build_graph("snapapp", cache_dir=None)  # its cache told of a module that had gone
    parts = sorted(graph.find_children(root) - _LEFT_OUT)
    return {
        _name(part): {
            _name(other)
            for other in parts
            if other != part and graph.direct_import_exists(importer=part, imported=other, as_packages=True)
        }
        for part in parts
    }


def _name(module: str) -> str:
    return module.rpartition(".")[2]


def _reduced(imports: Imports) -> Imports:
    below = {part: set(_reachable(imports, part)) for part in imports}
    return {
        part: {to for to in direct if not any(to in below[via] for via in direct)} for part, direct in imports.items()
    }


def _reachable(imports: Imports, part: str) -> Iterator[str]:
    for other in imports[part]:
        yield other
        yield from _reachable(imports, other)


# --- drawn ------------------------------------------------------------------------------------------------------

_Chain = list[str]  # an arrow: where it begins, a bend in each row that it passes, where it ends


def _drawn(imports: Imports) -> str:
    rows, chains = _rows(imports)
    wide = [sum(_space(item) for item in row) for row in rows]
    size = (max(wide) + 2 * _EDGE, len(rows) * _DOWN + 2 * _EDGE)
    at = {}
    for number, row in enumerate(rows):
        x = (size[0] - wide[number]) // 2
        for item in row:
            at[item] = (x + _space(item) // 2, _EDGE + number * _DOWN + _HEIGHT)
            x += _space(item)
    arrows = [_arrow([at[item] for item in chain]) for chain in chains]
    return "\n".join([_HEAD.format(*size), *arrows, *(_box(part, *at[part]) for part in sorted(imports)), "</svg>", ""])


def _space(item: str) -> int:
    return _BEND if " " in item else _ACROSS


def _rows(imports: Imports) -> tuple[list[list[str]], list[_Chain]]:
    """Each part one row below the lowest of those that import it; in a row, near those."""
    depth = dict.fromkeys(imports, 0)
    for _ in imports:
        for part, direct in imports.items():
            for other in direct:
                depth[other] = max(depth[other], depth[part] + 1)
    chains = [
        [part, *(f"{part} {to} {level}" for level in range(depth[part] + 1, depth[to])), to]
        for part in sorted(imports)
        for to in sorted(imports[part])
    ]
    level_of = {item: depth[chain[0]] + step for chain in chains for step, item in enumerate(chain)} | depth
    rows = [sorted(item for item in level_of if level_of[item] == level) for level in range(max(depth.values()) + 1)]
    steps = [step for chain in chains for step in pairwise(chain)]
    for above, row in pairwise(rows):
        place = {item: number / len(above) for number, item in enumerate(above)}
        users = {item: [place[user] for user, used in steps if used == item and user in place] for item in row}
        row.sort(key=lambda item: sum(users[item]) / max(1, len(users[item])))
    return rows, chains


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" \
font-family="sans-serif" font-size="14">
<!-- Made by `make docs` from the imports; do not edit. -->
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0L8 4L0 8z" fill="#7a8794"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>"""


def _arrow(points: list[tuple[int, int]]) -> str:
    half, last = _HEIGHT // 2, len(points) - 1
    path, (x, y) = f"M{points[0][0]} {points[0][1] + half}", (points[0][0], points[0][1] + half)
    for number, (to_x, middle) in enumerate(points[1:], 1):
        to_y = middle - half
        bend = (to_y - y) // 2
        path += f"C{x} {y + bend} {to_x} {to_y - bend} {to_x} {to_y}"
        if number != last:
            path += f"V{middle + half}"
        x, y = to_x, middle + half
    return f'<path d="{path}" fill="none" stroke="#7a8794" stroke-width="1.3" marker-end="url(#tip)"/>'


def _box(part: str, x: int, y: int) -> str:
    left, top = x - _WIDTH // 2, y - _HEIGHT // 2
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#eef3f7" stroke="#3b5568"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle">{escape(part)}</text>'
    )


if __name__ == "__main__":
    for name, root in PICTURES.items():
        (FOLDER / name).write_text(document(root))
