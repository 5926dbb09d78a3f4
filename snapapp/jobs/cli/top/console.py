"""Draws the screen of `snapapp top`, and gives the keys their meaning, as in k9s."""

import re
from typing import Any, NamedTuple

from snapapp.jobs.cli.shown import begun
from snapapp.jobs.cli.tables import cut, painted, text_in_lines, visible
from snapapp.jobs.cli.top.deeds import Ask
from snapapp.jobs.cli.top.pages import PAGES, Lines, Page, Row, Table, headline, in_lines, page_named
from snapapp.jobs.cli.top.refresher import Deed, Refresher
from snapapp.jobs.cli.top.terminal import Key, Terminal

_HELP = """\
1 2 3 4 5      queues, jobs, workers, failures, what the doctor finds
:              the same by name, the jobs of a queue or kind, or a job by its number
/              narrow the list by words; of jobs also: failed, kind=…, queue=…, tenant=…, error=…, hash=…
up down j k    move; page up, page down, g and G go further
enter          open
escape         back; takes a filter off first
r              retry a job that failed, or a whole group of failures
n              make a waiting job due now
c              cancel a job
p              pause a queue, or resume it
?              this
q              quit

What changes something asks first, and stands in the audit: /ops/audit, or the table job_audit.
""".splitlines()
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RED, _BOLD, _DIM, _YELLOW = "31", "1", "2", "33"
_LINES_ABOVE = 3  # above the list: numbers, pages, title


class Help(Page):
    name = "help"

    def read(self, *_: object) -> Lines:
        return Lines(_HELP)


class Typing(NamedTuple):
    """A line that is being typed: a command after :, a filter after /, or the reason for pausing a queue."""

    sign: str
    text: str
    ask: Ask | None = None


class Console:
    def __init__(self, terminal: Terminal, refresher: Refresher, page: Page) -> None:
        self._terminal, self._refresher = terminal, refresher
        self._pages = [page]
        self._cursors: dict[int, tuple[object, int]] = {}  # by id of a page: the key of the cursor's row, its position
        self._typing: Typing | None = None
        self._asking: Ask | None = None
        self._is_over = False

    def run(self) -> int:
        self._refresher.begin(self._page, self._terminal.wake)
        while True:
            self._terminal.draw(self._lines(*self._terminal.size))
            for key in self._terminal.keys(timeout=self._refresher.every):
                self._press(key)
            if self._terminal.ended_by:
                return 128 + self._terminal.ended_by
            if self._is_over:
                return 0

    @property
    def _page(self) -> Page:
        return self._pages[-1]

    # --- drawing ------------------------------------------------------------------------------------------------

    def _lines(self, columns: int, lines: int) -> list[str]:
        seen = self._refresher.seen
        head = headline(seen.overview) if seen.overview else "connecting …"
        room = max(1, lines - _LINES_ABOVE - 1)
        body = self._body(columns, room)
        numbers = painted(cut(head, columns), _DIM if seen.trouble else _BOLD)
        blank = [""] * (room - len(body))
        return [numbers, self._tabs(columns), self._title(columns), *body, *blank, self._foot(columns)]

    def _tabs(self, columns: int) -> str:
        """The names of all pages; in a narrow terminal the range of their numbers and the name of this one."""
        names = [f"{at} {name}" for at, name in enumerate(PAGES, 1)]
        if len("  ".join(names)) > columns:
            return cut(f"1-{len(names)} {self._pages[0].name}", columns)
        return "  ".join(painted(each, _BOLD if each[2:] == self._pages[0].name else _DIM) for each in names)

    def _title(self, columns: int) -> str:
        seen, page = self._refresher.seen, self._page
        if seen.trouble:
            when = f"This is from {seen.overview.now.astimezone():%H:%M:%S}. " if seen.overview else ""
            return painted(cut(visible(f"{when}{begun(seen.trouble)}"), columns), _RED)
        note = f" ({self._view.note})" if isinstance(self._view, Table) and self._view.note else ""
        return painted(cut(visible(f"{page.title}{f' /{page.words}' if page.words else ''}{note}"), columns), _YELLOW)

    @property
    def _view(self) -> object:
        seen = self._refresher.seen
        if isinstance(self._page, Help):
            return Lines(_HELP)  # also while the database is away
        return seen.shown if seen.page is self._page else None

    def _body(self, columns: int, room: int) -> list[str]:
        match self._view:
            case Table(rows=[]) as table:
                return [cut(table.empty, columns)]
            case Table() as table:
                return self._table(table, columns, room)
            case Lines(lines=lines):
                all_of_it = list(text_in_lines(lines))
                _, place = self._cursors.get(id(self._page), (None, 0))
                place = max(0, min(place, len(all_of_it) - room))
                self._cursors[id(self._page)] = (None, place)
                return all_of_it[place : place + room]
        return list(text_in_lines([visible(self._refresher.seen.trouble) or "…"]))

    def _table(self, table: Table, columns: int, room: int) -> list[str]:
        header, *rows = in_lines(table)
        place = self._place(table.rows)
        first = max(0, min(place - (room - 1) // 2, len(rows) - room + 1))
        plain = _COLOURS.sub("", rows[place])
        rows[place] = f"\x1b[7m{plain}{' ' * (columns - len(plain))}\x1b[0m"
        whole = self._whole(table.rows[place]) if plain.endswith("…") else []
        return [painted(header, _BOLD), *rows[first : first + room - 1], *whole][:room]

    def _whole(self, row: Row) -> list[str]:
        """The last cell of a row that had to be cut, for the lines that are free below the list."""
        return ["", *text_in_lines([visible(row.cells[-1])])]

    def _foot(self, columns: int) -> str:
        if self._typing:
            before = f"{self._typing.ask.question} " if self._typing.ask else self._typing.sign
            return visible(f"{before}{self._typing.text}_")[-columns:]
        if self._asking:
            return painted(cut(visible(f"{self._asking.question} [y/N]"), columns), _RED)
        if self._refresher.said:
            return painted(cut(visible(self._refresher.said), columns), _BOLD)
        hints = f"{self._page.hints_for(self._it())}  / filter  : go to  esc back  ? help  q quit"
        return painted(cut(hints.strip(), columns), _DIM)

    # --- keys ---------------------------------------------------------------------------------------------------

    def _press(self, pressed: Key) -> None:
        key, text = pressed
        if self._typing:
            self._type(self._typing, key, text)
        elif self._asking:
            ask, self._asking = self._asking, None
            self._do(ask.make(None)) if text in ("y", "Y") else self._say("Nothing was done.")
        else:
            self._refresher.said = ""
            self._command(key)

    def _command(self, key: str) -> None:
        names = list(PAGES)
        match key:
            case "q":
                self._is_over = True
            case ":" | "/":
                self._typing = Typing(key, self._page.words if key == "/" else "")
            case "?":
                self._open(Help())
            case "escape" | "backspace":
                self._back()
            case "enter":
                row = self._row()
                page = self._page.open_row(row.it) if row else None
                self._open(page) if page else None
            case "up" | "down" | "page up" | "page down" | "home" | "end":
                self._move(key)
            case _ if key.isdecimal() and 0 < int(key) <= len(names):
                self._turn_to(PAGES[names[int(key) - 1]]())
            case _:
                self._begin(key)

    def _type(self, typing: Typing, key: str, text: str) -> None:
        match key:
            case "escape":
                self._typing = None
                self._say("Nothing was done.") if typing.ask else None
            case "backspace":
                self._typing = typing._replace(text=typing.text[:-1]) if typing.text or typing.ask else None
            case "enter":
                self._typing = None
                self._finish_typing(typing)
            case _:
                self._typing = typing._replace(text=typing.text + text)

    def _finish_typing(self, typing: Typing) -> None:
        text = typing.text.strip()
        if typing.ask:
            self._do(typing.ask.make(text or None))
        elif typing.sign == "/":
            self._page.words = text
            self._refresher.want(self._page)
        elif text in ("q", "quit"):
            self._is_over = True
        elif page := page_named(text, self._refresher.seen.overview):
            self._turn_to(page) if page.name else self._open(page)
        elif text:
            self._say(f"There is no {text}: {', '.join(PAGES)}, a queue, a kind of the workers, or a job's number.")

    def _begin(self, key: str) -> None:
        """Begins an action of the page: it asks the person first."""
        it = self._it()
        ask = self._page.deed(key, it) if it is not None else None
        if isinstance(ask, str):
            self._say(ask)
        elif ask and ask.wants_reason:
            self._typing = Typing("", "", ask)
        else:
            self._asking = ask

    def _do(self, deed: Deed) -> None:
        self._say("…")
        self._refresher.do(deed)

    def _say(self, words: str) -> None:
        self._refresher.said = words

    # --- pages and cursors --------------------------------------------------------------------------------------

    def _turn_to(self, page: Page) -> None:
        self._pages, self._cursors = [], {}
        self._open(page)

    def _open(self, page: Page) -> None:
        self._pages.append(page)
        self._refresher.want(page)

    def _back(self) -> None:
        if self._page.words:
            self._page.words = ""
        elif len(self._pages) > 1:
            self._cursors.pop(id(self._pages.pop()), None)
        self._refresher.want(self._page)

    def _row(self) -> Row | None:
        if not isinstance(self._view, Table) or not self._view.rows:
            return None
        return self._view.rows[self._place(self._view.rows)]

    def _it(self) -> Any:
        """What the keys of the page are about: its subject, or that of the row of the cursor."""
        return self._view.it if isinstance(self._view, Lines) else (row := self._row()) and row.it

    def _place(self, rows: list[Row]) -> int:
        """The position of the cursor: it moves with its row, or stays where it was if the row is gone."""
        key, place = self._cursors.get(id(self._page), (None, 0))
        keys = [row.key for row in rows]
        place = keys.index(key) if key in keys else max(0, min(place, len(rows) - 1))
        self._cursors[id(self._page)] = (keys[place], place)
        return place

    def _move(self, key: str) -> None:
        page = max(1, self._terminal.size[1] - _LINES_ABOVE - 2)
        by = {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -(10**9), "end": 10**9}[key]
        if isinstance(self._view, Table) and self._view.rows:
            rows = self._view.rows
            place = max(0, min(self._place(rows) + by, len(rows) - 1))
            self._cursors[id(self._page)] = (rows[place].key, place)
        elif isinstance(self._view, Lines):
            _, place = self._cursors.get(id(self._page), (None, 0))
            self._cursors[id(self._page)] = (None, max(0, place + by))
