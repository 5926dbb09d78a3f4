"""Reads a history and says what in it must not be: offline, pure, one pass for each invariant.

The numbers are those of the reliability goal: I1 nothing acknowledged is lost, I2 everything ends and nobody sits on
it, I3 the states are obeyed, I4 only the holder of the latest lease writes, I5 two claims never overlap, I7 attempts
are capped, I9 what a worker was told stays so, I12 a dead worker's jobs are taken over in time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.labs.chaos.history import FINAL, Event, Final, History, Line

_LEGAL = frozenset(
    {
        (None, "PENDING"),
        ("PENDING", "RUNNING"),
        ("RETRY_WAIT", "RUNNING"),
        ("PENDING", "CANCELLED"),
        ("RETRY_WAIT", "CANCELLED"),
        ("RUNNING", "PENDING"),
        ("RUNNING", "RETRY_WAIT"),
        ("RUNNING", "COMPLETED"),
        ("RUNNING", "FAILED"),
        ("RUNNING", "CANCELLED"),
        ("FAILED", "PENDING"),
        ("CANCELLED", "PENDING"),
    }
)
_EXIT_SEEN_WITHIN = 1.0  # the lab looks after its workers a few times a second
_SHOWN = 40  # lines of a job's history in a violation

STALE = "stale and accepted"
OVER_THE_CAP = "allowed at most"
RAN_EXHAUSTED = "though its attempts were used up"

Lease = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    job: int | None
    says: str
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.invariant} job {self.job}: {self.says}", *self.history])


@dataclass(frozen=True, slots=True)
class Verdict:
    violations: tuple[Violation, ...]
    counts: Counter[str]
    takeovers: tuple[float, ...]  # seconds from a holder's last beat until somebody took the job back, sorted

    def takeover_at(self, share: float) -> float:
        """The time that this share of the takeovers did not need more than."""
        last = len(self.takeovers) - 1
        return round(self.takeovers[int(last * share)], 3) if self.takeovers else 0.0


@dataclass(slots=True)
class _Book:
    """The history, sorted by what the invariants ask for."""

    history: History
    by_job: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[Lease, Event] = field(default_factory=dict)  # by the lease that a change ended
    by_what: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[int, Final] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for event in self.history.events:
            self.by_job[event.job].append(event)
            if event.ends_a_claim and event.seq_old is not None:
                self.ended.setdefault((event.job, event.seq_old), event)
        for line in self.history.lines:
            self.by_what[line["what"]].append(line)
        self.jobs = {job.id: job for job in self.history.jobs}

    def violation(self, invariant: str, job: int, says: str) -> Violation:
        shown = [str(event) for event in self.by_job.get(job, [])]
        return Violation(invariant, job, says, tuple(shown[-_SHOWN:]))


def check(history: History) -> Verdict:
    book = _Book(history)
    violations = [violation for invariant in _INVARIANTS for violation in invariant(book)]
    return Verdict(tuple(violations), _counts(book), tuple(sorted(_takeovers(book))))


# --- I1, I2, I9: lost and undone ------------------------------------------------------------------------------------


def _acknowledged_is_kept(book: _Book) -> Iterator[Violation]:
    keys = {job.key: job.id for job in book.history.jobs if job.key}
    for line in book.by_what["enqueue ok"]:
        if keys.get(line["key"]) != line["job"]:
            yield Violation("I1", line["job"], f"{line['key']} was acknowledged and is not there")
    for line in book.by_what["enqueue fail"]:
        if line["key"] in keys:
            yield Violation("I1", keys[line["key"]], f"{line['key']} was never committed and is there")


def _everything_ends(book: _Book) -> Iterator[Violation]:
    for job in book.history.jobs:
        if job.status not in FINAL:
            yield book.violation("I2", job.id, f"it is {job.status} after everything was healed and drained")


def _nobody_sits_on_a_job(book: _Book) -> Iterator[Violation]:
    """A worker that beats for a job that it does not run would keep it from everybody, for ever."""
    for job, events in book.by_job.items():
        for claim, end in pairwise(events):
            held_for = end.at - max(claim.at, end.server_since)  # while the server was away nobody could settle it
            if claim.becomes == "RUNNING" and end.ends_a_claim and held_for > book.history.promises.longest:
                yield book.violation("I2", job, f"{claim.holder_new} held it for {held_for:.0f} s")


def _told_is_so(book: _Book) -> Iterator[Violation]:
    for line in book.by_what["completed"]:
        job = book.jobs.get(line["job_id"])
        if job is None or job.status != "COMPLETED":
            yield book.violation("I9", line["job_id"], f"a worker was told that it completed; it is {job}")


# --- I3: the state machine ------------------------------------------------------------------------------------------


def _states_are_obeyed(book: _Book) -> Iterator[Violation]:
    for job, events in book.by_job.items():
        before: Event | None = None
        for event in events:
            if event.was == event.becomes and event.seq_old == event.seq_new:
                continue  # somebody else's beat: I4 says so
            says = _wrong_change(before, event)
            if says:
                yield book.violation("I3", job, says)
            before = event
        if before and job in book.jobs and book.jobs[job].status != before.becomes:
            yield book.violation("I3", job, f"its row says {book.jobs[job].status}, its history {before.becomes}")


def _wrong_change(before: Event | None, event: Event) -> str | None:
    if (event.was, event.becomes) not in _LEGAL:
        return f"{event.was} -> {event.becomes} is no legal change"
    if event.was in FINAL and event.actor is not None:
        return f"a worker took it out of {event.was}"
    if event.seq_old is not None and event.seq_new <= event.seq_old:
        return f"its lease_seq went from {event.seq_old} to {event.seq_new}"
    if before and (before.becomes, before.seq_new) != (event.was, event.seq_old):
        return f"it left {event.was} at lease {event.seq_old}, but had come to {before.becomes} at {before.seq_new}"
    return None


# --- I4: one holder -------------------------------------------------------------------------------------------------


def _only_the_holder_writes(book: _Book) -> Iterator[Violation]:
    for event in book.history.events:
        if event.was == event.becomes == "RUNNING" and event.is_by_another:
            yield book.violation("I4", event.job, f"{event.actor} extended the lease of {event.holder_old}")
        elif event.ends_a_claim and event.is_by_another and not event.is_a_takeover:
            yield book.violation("I4", event.job, f"{STALE}: {event.actor} made it {event.becomes}")


def _accepted_means_latest(book: _Book) -> Iterator[Violation]:
    for line in book.by_what["complete"]:
        for job, seq in line["ok"]:
            if not _landed(book, (job, seq), line["worker"], "COMPLETED"):
                yield book.violation("I4", job, f"the completion of lease {seq} by {line['worker']} was accepted")
    for line in book.by_what["settle"]:
        job, seq = line["lease"]
        if line["status"] and not _landed(book, (job, seq), line["worker"], line["status"]):
            yield book.violation("I4", job, f"the settle of lease {seq} by {line['worker']} was accepted")


def _landed(book: _Book, lease: Lease, worker: str | None, status: str) -> bool:
    event = book.ended.get(lease)
    return event is not None and event.becomes == status and event.actor == worker


def _one_effect_each(book: _Book) -> Iterator[Violation]:
    effects: dict[int, list[int]] = defaultdict(list)
    for job, seq in book.history.effects:
        effects[job].append(seq)
    for final in book.history.jobs:
        left = effects.get(final.id, [])
        is_due = final.status == "COMPLETED" and final.kind in book.history.hooked
        if len(left) != is_due:
            yield book.violation("I4", final.id, f"{final.status}, and its hook left {len(left)} rows")
        elif left and book.by_job[final.id] and not _completed_at(book, final.id, left[0]):
            yield book.violation("I4", final.id, f"its effect is of lease {left[0]}, which did not complete it")
    yield from (
        Violation("I4", job, f"no such job, and its hook left {len(left)} rows")
        for job, left in effects.items()
        if job not in book.jobs
    )


def _completed_at(book: _Book, job: int, seq: int) -> bool:
    event = book.ended.get((job, seq))
    return event is not None and event.becomes == "COMPLETED"


def _one_burial_each(book: _Book) -> Iterator[Violation]:
    """The hook of the dead letters may be dropped, never doubled."""
    deaths = Counter(event.job for event in book.history.events if event.becomes == "FAILED")
    for job, burials in Counter(job for job, _ in book.history.burials).items():
        if burials > deaths[job]:
            yield book.violation("I4", job, f"buried {burials} times, dead {deaths[job]} times")


# --- I5: claims do not overlap --------------------------------------------------------------------------------------


def _claims_do_not_overlap(book: _Book) -> Iterator[Violation]:
    dead_since = _dead_since(book)
    for event in book.history.events:
        if event.was == "RUNNING" and event.becomes == "RUNNING" and event.seq_new != event.seq_old:
            yield book.violation("I5", event.job, f"{event.actor} claimed it while {event.holder_old} held it")
        if event.is_a_takeover and event.expires_old is not None and event.at < event.expires_old:
            died_at = dead_since.get(event.holder_old or "")
            if died_at is None or event.at < died_at:
                left = event.expires_old - event.at
                yield book.violation("I5", event.job, f"taken from a living {event.holder_old}, {left:.3f} s early")


def _dead_since(book: _Book) -> dict[str, float]:
    """By worker: killed by the lab, ended by a deadly job, or seen to be gone."""
    began = _began(book)
    ends = [(_worker_of(line["of"], line["at"], began), line["at"]) for line in book.by_what["kill"]]
    ends += [
        (_worker_of(line["of"], line["at"], began), line["at"] - _EXIT_SEEN_WITHIN) for line in book.by_what["exit"]
    ]
    ends += [(line["worker"], line["at"]) for line in book.by_what["start"] if line["kind"] in book.history.deadly]
    dead: dict[str, float] = {}
    for worker, at in ends:
        if worker:
            dead[worker] = min(at, dead.get(worker, at))
    return dead


def _began(book: _Book) -> dict[int, list[tuple[float, str]]]:
    """By pid: which workers had it, each with the time of its first line. The system gives a pid out again."""
    began: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for line in book.history.lines:
        workers = began[line["pid"]] if line.get("worker") else None
        if workers is not None and (not workers or workers[-1][1] != line["worker"]):
            workers.append((line["at"], line["worker"]))
    return began


def _worker_of(pid: int, at: float, began: dict[int, list[tuple[float, str]]]) -> str | None:
    """The worker that had this pid at this time."""
    workers = [worker for since, worker in began.get(pid, ()) if since <= at]
    return workers[-1] if workers else None


# --- I7: attempts are capped ----------------------------------------------------------------------------------------


def _attempts_are_capped(book: _Book) -> Iterator[Violation]:
    for job, events in book.by_job.items():
        most = book.jobs[job].max_attempts if job in book.jobs else 3
        for life in _lives(events):
            claims = sum(event.becomes == "RUNNING" and event.attempt_new <= most for event in life)
            given_back = sum(_given_back(event, most) for event in life)
            pardons = sum(_is_a_pardon(event, most) for event in life)
            if claims > most + given_back + min(pardons, 1):
                yield book.violation(
                    "I7", job, f"claimed {claims} times, {OVER_THE_CAP} {most} and {given_back} given back"
                )


def _lives(events: Iterable[Event]) -> list[list[Event]]:
    """A person's retry starts the count again."""
    lives: list[list[Event]] = [[]]
    for event in events:
        if event.was in FINAL and event.becomes == "PENDING":
            lives.append([])
        if event.seq_old != event.seq_new:
            lives[-1].append(event)
    return lives


def _given_back(event: Event, most: int) -> bool:
    """Not every claim is a run: handed back, snoozed, or not begun."""
    if not event.ends_a_claim or event.attempt_old > most:
        return False
    return event.becomes == "PENDING" and event.attempt_new < event.attempt_old


def _is_a_pardon(event: Event, most: int) -> bool:
    """A last attempt that was lost is tried once more, alone, before a job that is no suspect yet is judged."""
    return event.is_a_takeover and event.becomes == "RETRY_WAIT" and event.attempt_old == most and event.losses_old < 2


def _the_exhausted_do_not_run(book: _Book) -> Iterator[Violation]:
    most = {job.id: job.max_attempts for job in book.history.jobs}
    judged = {
        (event.job, event.seq_new)
        for event in book.history.events
        if event.becomes == "RUNNING" and event.attempt_new > most.get(event.job, event.attempt_new)
    }
    for line in book.by_what["start"]:
        if (line["job"], line["seq"]) in judged:
            yield book.violation("I7", line["job"], f"it ran at lease {line['seq']} {RAN_EXHAUSTED}")


def _the_dead_have_a_reason(book: _Book) -> Iterator[Violation]:
    for job in book.history.jobs:
        if job.status == "FAILED" and not (job.reasons and job.last_error):
            yield book.violation("I7", job.id, "it is dead without a recorded reason")
        elif job.kind in book.history.deadly and job.status == "COMPLETED":
            yield book.violation("I7", job.id, "it ends every worker, and is completed")


# --- I12: taken over in time ----------------------------------------------------------------------------------------


def _taken_over_in_time(book: _Book) -> Iterator[Violation]:
    promises = book.history.promises
    for event in book.history.events:
        if event.ends_a_claim and event.expires_old is not None:
            counted_from = max(event.expires_old, event.server_since + promises.settled_for)
            late = event.at - counted_from
            if late > promises.overdue:
                yield book.violation("I12", event.job, f"its lease had ended {late:.3f} s before somebody acted")


def _takeovers(book: _Book) -> Iterator[float]:
    """Those that no restart of the server got in the way of."""
    for event in book.history.events:
        if event.is_a_takeover and event.beaten_old is not None and event.server_since < event.beaten_old:
            yield event.at - event.beaten_old


# --- counts ---------------------------------------------------------------------------------------------------------


def _counts(book: _Book) -> Counter[str]:
    events = book.history.events
    return Counter(
        {
            "jobs": len(book.history.jobs),
            "claims": sum(event.becomes == "RUNNING" and event.was != "RUNNING" for event in events),
            "runs": len(book.by_what["start"]),
            "effects": len(book.history.effects),
            "recovered": sum(event.is_a_takeover for event in events),
            "handed back": sum(event.was == "RUNNING" and event.becomes == "PENDING" for event in events),
            "refused stale": len(_refused(book)),
            "unknown": sum(len(book.by_what[what]) for what in ("enqueue info", "complete info", "settle info")),
            **{status.lower(): count for status, count in Counter(job.status for job in book.history.jobs).items()},
        }
    )


def _refused(book: _Book) -> set[Lease]:
    """Completions that came too late and were turned away: without them a run has proven little."""
    refused = [(job, seq) for line in book.by_what["complete"] for job, seq in line["refused"]]
    refused += [(line["lease"][0], line["lease"][1]) for line in book.by_what["settle"] if not line["status"]]
    return {lease for lease in refused if not _completed_at(book, *lease)}


_INVARIANTS = (
    _acknowledged_is_kept,
    _everything_ends,
    _nobody_sits_on_a_job,
    _states_are_obeyed,
    _only_the_holder_writes,
    _accepted_means_latest,
    _one_effect_each,
    _one_burial_each,
    _claims_do_not_overlap,
    _attempts_are_capped,
    _the_exhausted_do_not_run,
    _the_dead_have_a_reason,
    _told_is_so,
    _taken_over_in_time,
)
