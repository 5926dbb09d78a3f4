"""How tables, durations and JSON look, on terminals of several widths and where a program reads them."""

import re
from datetime import timedelta

import pytest

from snapapp.jobs.amounts import about, span
from snapapp.jobs.cli.jobs.looking import in_line
from snapapp.jobs.cli.shown import folded_json
from snapapp.jobs.cli.tables import show_pairs, show_table
from snapapp.jobs.rows.people import lists, views
from tests.factory import Db, ago, make_job

HEADERS = ["id", "status", "kind", "queue", "try", "when", "note"]
LONG = "ValueError: " + "no frame at all could be read from this video " * 3
ROWS = [
    ["1234567", "RETRY_WAIT", "snap.process", "media", "1/3", "in 10 min", LONG],
    ["1234566", "COMPLETED", "video.probe.of.a.long.name", "light-and-quick", "1/3", "11 min ago", "took 12 ms"],
]


class Terminal:
    """So many columns; what is written is plain unless colours are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = monkeypatch, capsys
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("FORCE_COLOR", "1")

    def of(self, columns: int) -> None:
        self._patch.setenv("COLUMNS", str(columns))

    def text(self) -> str:
        return self._capsys.readouterr().out

    def lines(self) -> list[str]:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.text()).splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


@pytest.mark.parametrize(("columns", "left_out"), [(60, ["QUEUE"]), (80, []), (120, [])])
def test_a_row_is_one_line_and_what_is_too_long_ends_with_an_ellipsis(
    terminal: Terminal, columns: int, left_out: list[str]
) -> None:
    terminal.of(columns)
    show_table(HEADERS, ROWS, whole={4, 5}, spare=(3, 4))
    header, *lines = terminal.lines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= columns
    assert header.split() == [title.upper() for title in HEADERS if title.upper() not in left_out]
    assert lines[0].startswith("1234567  RETRY_WAIT  snap.pr")
    assert lines[0].endswith("…")
    assert "11 min ago" in lines[1]


def test_a_table_that_fits_in_no_way_becomes_a_block_of_lines_for_each_row(terminal: Terminal) -> None:
    terminal.of(40)
    show_table(["id", "busy", "done", "failed", "empty", "note"], [["a" * 9, *["1" * 9] * 3, "", LONG]], numbers={1})
    lines = terminal.lines()
    assert max(map(len, lines)) <= 40
    assert lines[:2] == ["ID      aaaaaaaaa", "BUSY    111111111"]
    assert "".join(line[8:] for line in lines[4:]).replace(" ", "") == LONG.replace(" ", "")
    assert not [line for line in lines if line.startswith("EMPTY")]


def test_a_program_reads_whole_lines_with_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([*HEADERS, "none"], [[*row, ""] for row in ROWS], spare=(3,))
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == [*[title.upper() for title in HEADERS], "NONE"]
    assert (len(lines), lines[0].endswith(LONG.rstrip())) == (2, True)


def test_wide_characters_count_twice(terminal: Terminal) -> None:
    terminal.of(20)
    show_table(["a", "b"], [["牛" * 20, "x"]])
    assert terminal.lines()[1].split() == ["牛" * 8 + "…", "x"]


def test_a_status_has_its_colour_where_a_person_looks(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        show_pairs([("status", "FAILED, now"), ("kind", "FAILED_kind")])
        return terminal.text()

    assert shown() == "status  \x1b[31mFAILED\x1b[0m, now\nkind    FAILED_kind\n"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert "\x1b" not in shown()
    monkeypatch.delenv("FORCE_COLOR")
    assert "\x1b" not in shown()


@pytest.mark.parametrize(
    ("milliseconds", "words", "age"),
    [
        (0, "0 ms", "0 ms"),
        (0.85, "0.8 ms", "1 ms"),
        (12.4, "12 ms", "12 ms"),
        (999.9, "1 s", "1 s"),
        (4_210, "4.2 s", "4 s"),
        (59_900, "1 min", "59 s"),
        (90_000, "1 min 30 s", "90 s"),
        (185_000, "3 min 5 s", "3 min"),
        (725_000, "12 min", "12 min"),
        (7_200_000, "2 h", "2 h"),
        (1e9, "11 d", "11 d"),
    ],
)
def test_durations_are_said_as_people_say_them(milliseconds: float, words: str, age: str) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert (span(duration), about(duration)) == (words, age)


def test_json_is_folded_for_people_only(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.of(80)
    value = {"cuts": list(range(100)), "name": "ação"}
    assert folded_json({"a": 1}) == '{"a": 1}'
    lines = folded_json(value).split("\n")
    assert lines[:3] == ["{", '  "cuts": [', "    0,"]
    assert (len(lines), lines[-1]) == (21, "… 85 more lines: --json shows all")
    show_pairs([("payload", folded_json(value))])
    assert terminal.lines()[:2] == ["payload  {", '           "cuts": [']
    monkeypatch.delenv("FORCE_COLOR")
    assert "\n" not in folded_json(value)


def test_a_completed_job_has_nothing_left_to_do(db: Db) -> None:
    from snapapp.jobs.cli.jobs.looking import job_in_words

    said = {"percent": 10, "note": "sleeping"}
    done = make_job(db, "COMPLETED", progress=said, started_at=ago(seconds=3), finished_at=ago())
    words = dict(job_in_words(views.job(db, done), ago()))
    assert words["progress"] == "████████████████████ 100 %"
    [line] = [in_line(one, ago()) for one in lists.jobs(db).jobs]
    assert "10 %" not in line[-1]


def test_a_table_without_a_word_is_its_header(terminal: Terminal) -> None:
    show_table(["a", "b"], [["", ""]])
    assert terminal.lines() == ["A  B", ""]
