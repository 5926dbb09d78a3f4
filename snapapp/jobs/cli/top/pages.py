"""The pages of the screen. Each page reads its rows or lines from the database, says which page Enter opens, and which
actions there are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, cast

from snapapp.jobs.amounts import about, ago
from snapapp.jobs.cli.jobs.looking import attempts_in_lines, in_line, job_in_words
from snapapp.jobs.cli.queues import counted, worker_line
from snapapp.jobs.cli.tables import pairs_in_lines, rows_in_lines, visible
from snapapp.jobs.cli.top import deeds
from snapapp.jobs.cli.top.deeds import Ask
from snapapp.jobs.cli.top.refresher import Db, Overview
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows import costs
from snapapp.jobs.rows.people import failures, lists, overviews, views
from snapapp.jobs.rows.people.lists import Filter
from snapapp.jobs.rows.people.overviews import QueueSummary
from snapapp.jobs.rows.people.views import JobSummary

MOST = 200  # jobs of a list
_LOG_LINES = 100


class Row(NamedTuple):
    key: object  # the cursor finds its row again by this
    cells: list[str]
    it: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    headers: Sequence[str]
    rows: list[Row]
    empty: str
    numbers: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    spare: tuple[int, ...] = ()
    note: str = ""


def in_lines(table: Table) -> list[str]:
    """The table with one line for the headers and one for each row."""
    cells = [row.cells for row in table.rows]
    return rows_in_lines(table.headers, cells, numbers=table.numbers, whole=table.whole, spare=table.spare)


@dataclass(frozen=True, slots=True)
class Lines:
    lines: list[str]
    it: Any = None


@dataclass(slots=True)
class Page:
    """A page. `words` is the filter that the person typed; the screen writes it, the refresher reads it."""

    words: str = ""

    name: ClassVar[str] = ""
    hints: ClassVar[str] = ""

    @property
    def title(self) -> str:
        return self.name

    def look(self, db: Db, overview: Overview) -> Table | Lines:
        shown = self.read(db, overview)
        return self.narrowed(shown) if isinstance(shown, Table) else shown

    def read(self, db: Db, overview: Overview) -> Table | Lines:
        raise NotImplementedError

    def open_row(self, _it: Any) -> "Page | None":
        """The page that Enter opens for a row; None: there is none."""
        return None

    def hints_for(self, _it: Any) -> str:
        """What the keys do here, to the row of the cursor."""
        return self.hints

    def deed(self, _key: str, _it: Any) -> Ask | str | None:
        """The action of a key on a row, or a sentence why it cannot be done; None: the key has no action."""
        return None

    def narrowed(self, table: Table) -> Table:
        """The table with only the rows that contain every word of the filter."""
        words = [word for word in self.words.lower().split() if "=" not in word]
        fits = [row for row in table.rows if all(word in " ".join(row.cells).lower() for word in words)]
        return replace(table, rows=fits) if words else table


class Queues(Page):
    name = "queues"
    hints = "enter its jobs  p pause, resume"

    def read(self, _db: Db, overview: Overview) -> Table:
        running, failed = _running_and_failed(overview)
        return Table(
            headers=("queue", "waiting", "due", "running", "failed", "oldest due", "paused"),
            rows=[Row(each.queue, _queue_cells(each, running, failed), each) for each in overview.queues],
            numbers=frozenset({1, 2, 3, 4, 5}),
            spare=(1,),
            empty="Every queue is empty, and none is paused.",
        )

    def open_row(self, it: QueueSummary) -> Page:
        return Jobs(which=Filter(queue=it.queue))

    def deed(self, key: str, it: QueueSummary) -> Ask | None:
        return deeds.switch_queue(it) if key == "p" else None


def _queue_cells(its: QueueSummary, running: int, failed: int) -> list[str]:
    waiting = [_counted(count, its.waiting) for count in (its.waiting, its.due)]
    counts = [*waiting, _counted(its.running, running), _counted(its.failed, failed)]
    oldest = about(its.oldest_due) if its.oldest_due is not None else ""
    paused = f"PAUSED, {its.paused_reason or 'no reason given'}" if its.paused_at else ""
    return [its.queue, *counts, oldest, paused]


def _running_and_failed(overview: Overview) -> tuple[int, int]:
    """Of all queues together, because together they are counted up to GLANCE."""
    return sum(each.running for each in overview.queues), sum(each.failed for each in overview.queues)


def _counted(jobs: int, of: int) -> str:
    return counted(jobs, of, overviews.GLANCE)


class OfJobs(Page):
    """A page on which the keys act on a job."""

    def hints_for(self, it: JobSummary | None) -> str:
        if it is None or it.status is Status.COMPLETED:
            return ""
        if it.status in FINAL:
            return "r retry"
        return "c cancel" if it.status is Status.RUNNING or it.waits_for else "n run now  c cancel"

    def deed(self, key: str, it: JobSummary) -> Ask | str | None:
        match key:
            case "r":
                return deeds.retry_job(it)
            case "n":
                return deeds.run_job_now(it)
            case "c":
                return deeds.cancel_job(it)
        return None


@dataclass(slots=True)
class Jobs(OfJobs):
    """The newest matching jobs. Words such as `status=failed` and `kind=…` filter in the database; other words filter
    the rows that came from it."""

    which: Filter = field(default_factory=Filter)

    name = "jobs"

    @property
    def title(self) -> str:
        named = (("status", self.which.status), ("kind", self.which.kind), ("queue", self.which.queue))
        return " ".join(["jobs", *(f"{name}={value}" for name, value in named if value), self.which.error_line or ""])

    def read(self, db: Db, _overview: Overview) -> Table:
        page = lists.jobs(db, _narrow_filter(self.words, self.which), limit=MOST)
        table = _of_jobs(page.jobs, page.now, "No job matches.")
        return replace(table, note=f"among the newest {MOST}" if page.before is not None else "")

    def narrowed(self, table: Table) -> Table:
        words = " ".join(word for word in self.words.split() if word.upper() not in _STATES)
        return Page(words).narrowed(table)

    def hints_for(self, it: JobSummary | None) -> str:
        return f"enter opens  {OfJobs.hints_for(self, it)}"

    def open_row(self, it: JobSummary) -> Page:
        return Job(job_id=it.id)


_STATES = {status.value for status in Status}
_NAMED = {"kind", "queue", "tenant", "error", "hash"}


def _narrow_filter(words: str, which: Filter) -> Filter:
    """The filter, narrowed by words such as `failed` and `kind=mail`."""
    for word in words.split():
        name, is_named, value = word.partition("=")
        if word.upper() in _STATES:
            which = replace(which, status=Status(word.upper()))
        elif is_named and name == "status" and value.upper() in _STATES:
            which = replace(which, status=Status(value.upper()))
        elif is_named and name in _NAMED:
            which = replace(which, **cast("dict[str, Any]", {name: value}))
        elif is_named:
            raise InvalidJob(f"{word}: jobs are narrowed by status=, {'=, '.join(sorted(_NAMED))}= and plain words")
    return which


def _of_jobs(jobs: Iterable[JobSummary], now: Any, empty: str) -> Table:
    return Table(
        headers=("id", "status", "kind", "queue", "try", "when", "note"),
        rows=[Row(job.id, in_line(job, now), job) for job in jobs],
        whole=frozenset({4, 5}),
        spare=(3, 4),
        empty=empty,
    )


class Workers(Page):
    name = "workers"
    hints = "enter the jobs in its hands"

    def read(self, _db: Db, overview: Overview) -> Table:
        return Table(
            headers=("name", "status", "busy", "done", "failed", "memory", "beat", "queues, note"),
            rows=[Row(each.id, _worker_cells(each, _overdue(overview)), each) for each in overview.workers],
            numbers=frozenset({2, 3, 4, 5}),
            whole=frozenset({6}),
            spare=(5, 4),
            empty="No worker is on the roster: nothing runs.",
        )

    def open_row(self, it: overviews.WorkerSummary) -> Page:
        return InHand(worker=it.id, called=it.name)


def _worker_cells(its: overviews.WorkerSummary, overdue: set[str]) -> list[str]:
    _, status, *counts, beat, _ = worker_line(its)
    note = "; ".join(filter(None, [", ".join(its.queues) or "all", its.note]))
    return [its.name, "LOST" if its.id in overdue else status, *counts, f"{its.memory_mb} MB", beat, note]


def _overdue(overview: Overview) -> set[str]:
    """The workers that the doctor misses: it sees that a process is gone before the worker's last lease has ended."""
    return {each.numbers["worker"] for each in overview.findings or () if each.id == "WORKER_OVERDUE"}


@dataclass(slots=True)
class InHand(Jobs):
    worker: str = ""
    called: str = ""

    @property
    def title(self) -> str:
        return f"jobs in the hands of {self.called}"

    def read(self, db: Db, overview: Overview) -> Table:
        ids = [job for each in overview.workers if each.id == self.worker for job in each.current_jobs]
        return _of_jobs(views.lines(db, ids), overview.now, "It has none.")


def _group_cells(its: failures.Group, last: str) -> list[str]:
    return [str(its.jobs), str(its.last_hour), last, its.kind, its.line or "(no error was written down)"]


class Failures(Page):
    name = "failures"
    hints = "enter its jobs  r retry all of a group"

    def read(self, db: Db, overview: Overview) -> Table:
        page = failures.groups(db)
        rest = page.seen - sum(each.jobs for each in page.groups)
        notes = [
            f"{rest} more went wrong in other ways" if rest else "",
            f"of the newest {page.seen} FAILED jobs" if page.more else "",
        ]
        rows = [
            Row((each.kind, each.line), _group_cells(each, ago(overview.now - each.last_at)), each)
            for each in page.groups
        ]
        return Table(
            headers=("jobs", "1 h", "last", "kind", "what went wrong"),
            rows=rows,
            numbers=frozenset({0, 1}),
            whole=frozenset({2}),
            empty="No job has failed for good.",
            note="; ".join(filter(None, notes)),
        )

    def open_row(self, it: failures.Group) -> Page:
        return Jobs(which=Filter(status=Status.FAILED, kind=it.kind, error_line=it.line))

    def deed(self, key: str, it: failures.Group) -> Ask | None:
        return deeds.retry_group(it) if key == "r" else None


class Doctor(Page):
    """The doctor's findings, the worst first."""

    name = "doctor"
    hints = "enter why, and what to do"

    def read(self, _db: Db, overview: Overview) -> Table:
        if overview.findings is None:
            return Table(headers=(), rows=[], empty="The doctor examines the database …")
        wrong = [each for severity in _BADNESS for each in overview.findings if each.severity == severity]
        well = len(overview.findings) - len(wrong)
        note = f"{well} checks found nothing wrong; by this shell's settings, by the server's see /ops"
        return Table(
            headers=("how bad", "what it saw"),
            rows=[Row((each.id, each.saw), [each.severity.upper(), each.saw], each) for each in wrong],
            whole=frozenset({0}),
            empty=f"{note}.",
            note=note,
        )

    def open_row(self, it: Any) -> Page:
        return Finding(finding=it)


_BADNESS = ("critical", "warning", "notice")


@dataclass(slots=True)
class Finding(Page):
    finding: Any = None

    @property
    def title(self) -> str:
        return f"{self.finding.severity}: {self.finding.id}"

    def read(self, _db: Db, _overview: Overview) -> Lines:
        its = self.finding
        parts = (its.saw, its.why, its.do, its.paste)
        return Lines([line for part in parts if part for line in (*visible(part, keep="\n").split("\n"), "")])


@dataclass(slots=True)
class Job(OfJobs):
    job_id: int = 0

    @property
    def title(self) -> str:
        return f"job {self.job_id}"

    def read(self, db: Db, overview: Overview) -> Lines:
        job = views.job(db, self.job_id)
        why = visible(views.explain(db, job.id), keep="\n").split("\n")
        facts = pairs_in_lines(job_in_words(job, overview.now))
        logs = views.logs(db, job.id, limit=_LOG_LINES)
        return Lines([*why, "", *facts, *attempts_in_lines(job, costs.of_job(db, job.id), logs)], job)


PAGES: dict[str, type[Page]] = {page.name: page for page in (Queues, Jobs, Workers, Failures, Doctor)}


def page_named(typed: str, overview: Overview | None) -> Page | None:
    """The page with this name, or whose name begins with it; the jobs of the queue or kind with this name; or the page
    of the job with this number."""
    if typed.isdecimal() and 0 < int(typed) < 2**63:
        return Job(job_id=int(typed))
    if overview and typed not in PAGES:
        if any(typed == each.queue for each in overview.queues):
            return Jobs(which=Filter(queue=typed))
        if any(typed in each.kinds for each in overview.workers):
            return Jobs(which=Filter(kind=typed))
    return next((page() for name, page in PAGES.items() if typed and name.startswith(typed)), None)


def headline(overview: Overview) -> str:
    """The line of numbers above every page."""
    queues, workers = overview.queues, overview.workers
    waiting, is_more = sum(each.waiting for each in queues), any(each.waiting > overviews.GLANCE for each in queues)
    running, failed = _running_and_failed(overview)
    oldest = max((each.oldest_due for each in queues if each.oldest_due is not None), default=None)
    alive = [each for each in workers if each.status != "LOST" and each.id not in _overdue(overview)]
    found = [each.severity for each in overview.findings or ()]
    critical, warnings = found.count("critical"), found.count("warning")
    urgent = f"{critical} critical" if critical else f"{warnings} warning{'' if warnings == 1 else 's'}"
    parts = [
        *([f"doctor: {urgent}"] if critical or warnings else []),
        f"{waiting}{'+' if is_more else ''} wait",
        f"{_counted(running, running)} run",
        f"{_counted(failed, failed)} failed",
        *([f"oldest due {about(oldest)}"] if oldest is not None else []),
        f"{len(alive)} worker{'' if len(alive) == 1 else 's'}",
    ]
    return " · ".join(parts)
