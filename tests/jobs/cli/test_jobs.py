"""`snapapp jobs` and `snapapp queues`, on a real database."""

import io
import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from snapapp.jobs.rows import roster
from snapapp.jobs.rows.roster import Report
from tests.commands import MEMBER, Call, Terminal, enqueued
from tests.factory import Db, ago, claim, hence, make_job, make_jobs, row, statuses

# --- jobs -------------------------------------------------------------------------------------------------------------


def test_an_empty_queue_is_said_to_be_empty(call: Call) -> None:
    assert call("jobs", "list") == (0, "No job matches.\n", "")
    assert call("jobs", "list", "--json").json == {"jobs": [], "before": None}
    assert call("queues", "list").out == "Every queue is empty, and none is paused.\n"
    assert call("workers", "list").out == "No worker is on the roster.\n"
    assert "No job ended within the last hour." in call("jobs", "stats").out


def test_jobs_are_listed_newest_first_in_whole_lines(call: Call, db: Db) -> None:
    long_kind = "k" * 200
    waiting = make_job(db, next_retry_at=hence(minutes=10))
    failed = make_job(db, "FAILED", kind=long_kind, last_error="e" * 90 + "\nmore", attempt_count=3)
    running = make_job(db, "RUNNING", progress={"percent": 40, "note": "frames"}, started_at=ago(seconds=5))
    answer = call("jobs", "list")
    header, *lines = answer.out.splitlines()
    assert header.split() == ["ID", "STATUS", "KIND", "QUEUE", "TRY", "WHEN", "NOTE"]
    assert [line.split()[:2] for line in lines] == [
        [str(running), "RUNNING"],
        [str(failed), "FAILED"],
        [str(waiting), "PENDING"],
    ]
    assert "40 % frames" in lines[0]
    assert long_kind in lines[1]
    assert "3/3" in lines[1]
    assert lines[1].endswith("e" * 90)
    assert "in 9 min" in lines[2]
    assert "\x1b" not in answer.out
    db.execute("UPDATE snap_processing_job SET started_at = NULL WHERE id = %s", [running])  # until its first beat
    assert re.search(r"  claimed  +40 % frames", call("jobs", "list").out)


def test_a_terminal_of_80_columns_is_enough(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute("ALTER TABLE snap_processing_job ALTER id RESTART WITH 9000000000000000")
    ids = make_jobs(db, 3, status="FAILED", kind="snap.process", queue="media", last_error="e" * 500)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    answer = call("jobs", "list")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in answer.out.splitlines()]
    assert answer.out != "\n".join(plain) + "\n"
    assert max(map(len, plain)) <= 80
    assert all(any(line.startswith(str(job_id)) for line in plain) for job_id in ids)


def test_what_jobs_say_cannot_steer_the_terminal_or_the_table(call: Call, db: Db) -> None:
    evil = "\x1b[2J\x07[red]bold[/red]\rpwned\u202e"
    job_id = make_job(db, "FAILED", kind="[bold]kind[/bold]", last_error=evil, progress={"percent": 1, "note": evil})
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)", [job_id, evil])
    for answer in (call("jobs", "list"), call("jobs", "show", job_id)):
        assert "[bold]kind[/bold]" in answer.out
        assert "[red]bold[/red]" in answer.out
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(answer.out)


@pytest.mark.parametrize("typed", ["list", "prune", "retry --failed"])
def test_an_age_that_nothing_can_have_is_refused_before_the_database_is_asked(call: Call, typed: str) -> None:
    answer = call("jobs", *typed.split(), "--older-than", "9999999d")
    assert answer.code == 2
    assert "'9999999d' is longer than 365000d" in answer.err
    assert call("jobs", "list", "--older-than", "365000d").out == "No job matches.\n"


def test_a_list_is_filtered_limited_and_paged(call: Call, db: Db) -> None:
    first, second, third = make_jobs(db, 3, kind="mail.send")
    failed = make_job(db, "FAILED", kind="mail.send", queue="mail", tenant="olho")
    make_job(db, "FAILED")

    def ids(*options: object) -> list[int]:
        return [job["id"] for job in call("jobs", "list", "--json", *options).json["jobs"]]

    assert ids("--kind", "mail.send") == [failed, third, second, first]
    assert ids("--status", "failed", "--kind", "mail.send") == [failed]
    assert ids("--queue", "mail") == ids("--tenant", "olho") == [failed]
    assert ids("--kind", "mail.send", "--before", third) == [second, first]
    answer = call("jobs", "list", "--limit", 2)
    assert answer.err == f"Older ones: --before {failed}\n"
    assert len(answer.out.splitlines()) == 3


def test_a_job_is_shown_in_words(call: Call, db: Db) -> None:
    job_id = make_job(
        db,
        "RUNNING",
        payload={"to": "ação"},
        progress={"percent": 40, "note": "frames"},
        errors=[{"attempt": 1, "error": "ValueError: no", "trace": "  File x, line 1\n", "ran_ms": 12.5}],
        unique_key="ana",
        unique_scope="ever",
        replay_of=7,
        timeout_ms=5000,
        interruptions=1,
    )
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, 'twelve frames')", [job_id])
    answer = call("jobs", "show", job_id)
    assert answer.code == 0
    for words in (
        "worker worker, last heartbeat",
        "████████░░░░░░░░░░░░ 40 % frames",
        '{"to": "ação"}',
        "ana (ever)",
        "job 7",
        "timeout     5 s\n",
        ", interrupted 1 time by a shutdown",
        "attempt 1, after 12 ms, failed: ValueError: no",
        "File x, line 1",
        "twelve frames",
    ):
        assert words in answer.out
    shown = call("jobs", "show", job_id, "--json").json
    assert shown["payload"] == {"to": "ação"}
    assert [entry["message"] for entry in shown["logs"]] == ["twelve frames"]
    assert set(row(db, job_id)._fields) <= set(shown)


def test_a_job_that_is_not_there_is_said_not_to_be(call: Call) -> None:
    for verb in ("show", "replay"):
        assert call("jobs", verb, 42) == (1, "", "snapapp: there is no job 42\n")
    for verb in ("retry", "now", "cancel"):
        assert call("jobs", verb, 42) == (1, "", "there is no job 42\n")


# --- enqueue ----------------------------------------------------------------------------------------------------------


def test_a_job_is_added_with_all_that_was_said_of_it(call: Call, db: Db) -> None:
    options = "--queue media --priority -5 --run-at 2031-02-03T04:05:06-03:00 --unique-key a --max-attempts 9"
    answer = call(
        "jobs", "enqueue", "test", '{"a": "ação"}', *options.split(), "--tenant", "t", "--concurrency-key", "c"
    )
    it = row(db, enqueued(answer))
    assert (it.kind, it.payload, it.queue, it.priority, it.tenant) == ("test", {"a": "ação"}, "media", -5, "t")
    assert (it.unique_key, it.max_attempts, it.concurrency_key) == ("a", 9, "c")
    assert it.next_retry_at.isoformat() == "2031-02-03T07:05:06+00:00"
    assert "No worker that is alive knows the kind test" in answer.err


def test_a_delay_is_said_with_its_unit(call: Call, db: Db) -> None:
    for text, seconds in (("250ms", 0.25), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("1d", 86400)):
        it = row(db, enqueued(call("jobs", "enqueue", "test", "--delay", text)))
        assert (it.next_retry_at - it.created_at).total_seconds() == seconds


def test_a_kinds_own_queue_is_used_and_a_living_worker_is_known(call: Call, db: Db) -> None:
    roster.beat(db, MEMBER, Report(), lives_for=timedelta(minutes=1))
    answer = call("jobs", "enqueue", "demo.hello")
    assert answer.err == ""
    assert (row(db, enqueued(answer)).queue, row(db, enqueued(answer)).max_attempts) == ("demo", 3)


def test_the_setting_for_attempts_counts(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_JOB_MAX_ATTEMPTS", "8")
    assert row(db, enqueued(call("jobs", "enqueue", "test"))).max_attempts == 8
    monkeypatch.delenv("SNAPAPP_JOB_MAX_ATTEMPTS")
    assert row(db, enqueued(call("jobs", "enqueue", "test"))).max_attempts == 3


def test_a_payload_comes_from_a_file_or_stdin(
    call: Call, db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.json").write_text('{"a": "ação"}', encoding="utf-8")
    assert row(db, enqueued(call("jobs", "enqueue", "test", "@payload.json"))).payload == {"a": "ação"}
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"b": 1}\n'))
    assert row(db, enqueued(call("jobs", "enqueue", "test", "-"))).payload == {"b": 1}
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"c": 1}'))
    answer = call("jobs", "enqueue", "test", "-", "--json")
    assert row(db, json.loads(answer.out)["id"]).payload == {"c": 1}


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["test", "{'a': 1}"], "the payload is not JSON: Expecting property name"),
        (["test", ""], "the payload is not JSON: Expecting value"),
        (["test", "[1]"], "the payload must be a JSON object, not list"),
        (["test", '{"a": NaN}'], "the payload is not JSON that PostgreSQL can keep"),
        (["test", '{"a": "\\u0000"}'], "the payload holds a NUL character"),
        (["test", '{"a": "\\ud800"}'], "the payload is not JSON that PostgreSQL can keep"),
        (["test", '{"a":' * 100_000], "the payload cannot be read: maximum recursion depth"),
        (["test", "@nowhere.json"], "nowhere.json: No such file or directory"),
        (["test", "@binary"], "the payload cannot be read: 'utf-8' codec can't decode"),
        (["test", "@large.json"], "more than the 1048576 allowed"),
        (["", "{}"], "a job needs a kind"),
        (["test", "--priority", "5000"], "priority must be a whole number from -1000 to 1000, not 5000"),
        (["test", "--max-attempts", "0"], "max_attempts must be a whole number from 1 to 1000, not 0"),
        (["test", "--queue", ""], "queue must not be empty"),
        (["test", "--delay", "5000d"], "delay must be a timedelta"),
    ],
)
def test_a_job_that_cannot_be_is_one_line(call: Call, db: Db, tmp_path: Path, arguments: list[str], why: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large.json").write_text(json.dumps({"a": "b" * 2**20}))
    answer = call("jobs", "enqueue", *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("snapapp: ")
    assert why in answer.err
    assert len(answer.err.splitlines()) == 1
    assert statuses(db) == {}


# --- retry, cancel, replay --------------------------------------------------------------------------------------------


def test_jobs_are_retried_by_id_and_each_refusal_says_why(call: Call, db: Db) -> None:
    failed, cancelled = make_job(db, "FAILED", attempt_count=3), make_job(db, "CANCELLED")
    running = make_job(db, "RUNNING")
    answer = call("jobs", "retry", failed, running, 4242, cancelled)
    assert answer.code == 1
    assert answer.out == f"Job {failed} runs again\nJob {cancelled} runs again\n"
    assert answer.err == (
        f"job {running} is RUNNING: only a FAILED or CANCELLED job can be retried\nthere is no job 4242\n"
    )
    assert statuses(db) == {failed: "PENDING", cancelled: "PENDING", running: "RUNNING"}
    assert row(db, failed).attempt_count == 0


def test_waiting_jobs_are_run_now_by_id_and_each_refusal_says_why(call: Call, db: Db) -> None:
    delayed, failed = make_job(db, next_retry_at=hence(hours=1)), make_job(db, "FAILED")
    waits = make_job(db, "RETRY_WAIT", attempt_count=1, next_retry_at=hence(hours=1))
    answer = call("jobs", "now", waits, failed, 4242, delayed, waits)
    assert answer.code == 1
    assert answer.out == f"Job {delayed} is due now\nJob {waits} is due now\n"
    assert answer.err == f"job {failed} is FAILED: only a waiting job can be run now\nthere is no job 4242\n"
    assert claim(db) == [delayed, waits]
    due = make_job(db)
    assert call("jobs", "now", due, "--json").json == {"done": [due], "refused": []}
    answer = call("jobs", "now", delayed, "--json")
    assert (answer.code, json.loads(answer.out)["refused"]) == (
        1,
        [{"id": delayed, "why": f"job {delayed} is RUNNING: only a waiting job can be run now"}],
    )


def test_all_dead_letters_are_retried_and_the_refused_are_counted(call: Call, db: Db) -> None:
    held = make_job(db, "FAILED", unique_key="a", unique_scope="live")
    holder = make_job(db, unique_key="a", unique_scope="live")
    failed = make_jobs(db, 250, status="FAILED")
    answer = call("jobs", "retry", "--failed", "--yes")
    assert (answer.code, answer.out) == (0, "250 jobs retried, 1 refused.\n")
    assert answer.err == f"job {held} cannot be retried: job {holder} holds its unique key a\n"
    assert {statuses(db)[job_id] for job_id in failed} == {"PENDING"}
    assert call("jobs", "retry", "--failed", "--yes", "--json").json == {
        "done": [],
        "refused": [{"id": held, "why": f"job {held} cannot be retried: job {holder} holds its unique key a"}],
    }


def test_a_bulk_retry_is_narrowed_by_kind_and_queue(call: Call, db: Db) -> None:
    wanted = make_job(db, "FAILED", kind="a", queue="x")
    others = [make_job(db, "FAILED", kind="a", queue="y"), make_job(db, "FAILED", kind="b", queue="x")]
    assert call("jobs", "retry", "--failed", "--kind", "a", "--queue", "x", "--yes").out == "1 job retried.\n"
    assert statuses(db) == {wanted: "PENDING", others[0]: "FAILED", others[1]: "FAILED"}
    assert call("jobs", "retry", "--failed", "--kind", "none").out == "No jobs retried.\n"


def test_a_preview_counts_and_shows_and_changes_nothing(call: Call, db: Db) -> None:
    failed = make_jobs(db, 12, status="FAILED", last_error="Timeout: no answer")
    make_job(db, "FAILED", last_error="ValueError")
    before = statuses(db)
    answer = call("jobs", "retry", "--failed", "--error", "timeout", "--preview")
    assert answer.code == 0
    assert answer.out.startswith("This would retry 12 jobs, the newest of them:\n")
    assert [line.split()[0] for line in answer.out.splitlines()[-10:]] == [str(job_id) for job_id in failed[:1:-1]]
    assert call("jobs", "discard", "--failed", "--reason", "x", "--preview", "--json").json["matching"] == 13
    assert call("jobs", "retry", "--failed", "--kind", "none", "--preview").out == "This would retry no jobs.\n"
    assert statuses(db) == before
    assert call("jobs", "retry", "--failed", "--error", "timeout", "--yes").out == "12 jobs retried.\n"


def test_jobs_are_chosen_by_age_and_by_the_hash_of_their_work(call: Call, db: Db) -> None:
    """R36, R48: replayed by their hash, too."""
    work = {"unique_key": "spec:9f86d081884c", "unique_scope": "live"}
    done = make_job(db, "COMPLETED", created_at=ago(days=3), **work)
    failed = make_job(db, "FAILED", created_at=ago(days=1), **work)
    make_job(db, "COMPLETED")
    assert [job["id"] for job in call("jobs", "list", "--hash", "9F86D0", "--json").json["jobs"]] == [failed, done]
    assert call("jobs", "list", "--hash", "9f86d0", "--older-than", "2d", "--json").json["jobs"][0]["id"] == done
    assert call("jobs", "replay", "--ended", "--hash", "9f86d081", "--yes").out == "1 job replayed.\n"
    assert (
        call("jobs", "replay", "--ended", "--status", "failed", "--older-than", "2h", "--yes").out
        == "1 job replayed.\n"
    )
    copies = db.execute("SELECT replay_of FROM snap_processing_job WHERE status = 'PENDING' ORDER BY id").fetchall()
    assert copies == [(done,), (failed,)]
    assert call("jobs", "list", "--hash", "xyz").code == 2


def test_dead_letters_are_discarded_by_a_filter(call: Call, db: Db) -> None:
    gone, kept = make_job(db, "FAILED", queue="a"), make_job(db, "FAILED", queue="b")
    answer = call("jobs", "discard", "--failed", "--queue", "a", "--reason", "old", "--yes")
    assert (answer.code, answer.out) == (0, "1 job discarded.\n")
    assert statuses(db) == {gone: "CANCELLED", kept: "FAILED"}


def test_many_are_only_touched_after_a_yes(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    [failed] = make_jobs(db, 1, status="FAILED")
    answer = call("jobs", "retry", "--failed")
    assert answer.code == 2
    assert "this would retry 1 job: add --yes" in answer.err
    for typed, code, status in (("\n", 1, "FAILED"), ("no\n", 1, "FAILED"), ("", 1, "FAILED"), ("y\n", 0, "PENDING")):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        answer = call("jobs", "retry", "--failed")
        assert (answer.code, row(db, failed).status) == (code, status)
        assert answer.err.startswith("Retry 1 job? [y/N] ")


def test_jobs_are_cancelled_by_id(call: Call, db: Db) -> None:
    waiting, running, done = make_job(db), make_job(db, "RUNNING"), make_job(db, "COMPLETED")
    answer = call("jobs", "cancel", waiting, running, done)
    assert answer.code == 1
    assert answer.out == f"Job {waiting} is cancelled\nJob {running} is running and was asked to stop\n"
    assert answer.err == f"job {done} is COMPLETED: there is nothing to cancel\n"
    assert row(db, running).cancel_requested_at is not None


def test_all_waiting_jobs_are_cancelled(call: Call, db: Db) -> None:
    waiting = [*make_jobs(db, 2, kind="a"), make_job(db, "RETRY_WAIT", kind="a", losses=2, gate="alone")]
    others = [make_job(db, kind="b"), make_job(db, "RUNNING", kind="a")]
    assert call("jobs", "cancel", "--waiting", "--kind", "a", "--yes").out == "3 jobs cancelled.\n"
    assert {row(db, job_id).status for job_id in waiting} == {"CANCELLED"}
    assert [row(db, job_id).status for job_id in others] == ["PENDING", "RUNNING"]


def test_a_replay_is_a_copy(call: Call, db: Db) -> None:
    job_id = make_job(db, "COMPLETED", payload={"a": 1})
    answer = call("jobs", "replay", job_id)
    assert answer.out == f"Job {enqueued(answer)} repeats job {job_id}\n"
    assert (row(db, enqueued(answer)).payload, row(db, enqueued(answer)).replay_of) == ({"a": 1}, job_id)


# --- queues and workers -----------------------------------------------------------------------------------------------


def test_a_queue_is_paused_with_a_reason_and_resumed(call: Call, db: Db) -> None:
    make_job(db, queue="mail")
    assert call("queues", "pause", "mail", "--reason", "the server is down").code == 0
    assert "the server is down" in call("queues", "list").out
    [mail] = call("queues", "list", "--json").json
    assert (mail["queue"], mail["pending"], mail["paused_reason"]) == ("mail", 1, "the server is down")
    db.execute("INSERT INTO snap_processing_job (kind, queue) SELECT 'test', 'full' FROM generate_series(1, 10001)")
    assert call("queues", "list").out.splitlines()[1].split()[:4] == ["full", "10,000+", "0+", "10,000+"]
    assert call("queues", "resume", "mail", "--json").json == {"queue": "mail", "paused": False}
    assert call("queues", "list", "--json").json[0]["paused_at"] is None
    assert "mail" in call("jobs", "stats").out


def test_what_a_weekend_did_is_told_also_of_jobs_that_are_deleted(call: Call, db: Db) -> None:
    assert "No attempt ended within the last 24h." in call("jobs", "stats", "--over", "24h").out
    db.execute(
        "INSERT INTO job_history SELECT at, 60, 'mail.send', 40, 2, 1, 5, '{30}', '{0,0,0,0,0,0,0,0,48}'"
        " FROM unnest(%s::timestamptz[]) AS at",
        [[ago(hours=30), ago(hours=60)]],
    )
    assert "No attempt ended within the last 24h." in call("jobs", "stats", "--over", "24h").out
    *_, header, line = call("jobs", "stats", "--over", "7d").out.splitlines()
    assert header.split() == ["LAST", "7D", "COMPLETED", "FAILED", "CANCELLED", "RETRIED", "WAITED", "RAN"]
    assert line.split()[:5] == ["mail.send", "80", "4", "2", "10"]
    told = call("jobs", "stats", "--over", "7d", "--json").json
    assert (told["over"], told["kinds"][0]["failed"]) == ("7d", 4)
    assert told["kinds"][0]["run"]["p50"] == pytest.approx(16, rel=0.3)
    wrong = call("jobs", "stats", "--over", "2d")
    assert (wrong.code, "invalid choice: '2d'" in wrong.err) == (2, True)


def test_a_pause_of_a_queue_that_nothing_has_named_says_so(call: Call, db: Db) -> None:
    """Who mistyped believed that the queue stood still."""
    make_job(db, queue="media")
    for queue, hint in (("meida", "; did you mean media?"), ("elsewhere", ".")):
        paused = call("queues", "pause", queue)
        assert (paused.code, paused.out) == (
            0,
            f"The queue {queue} is paused; what runs goes on. No job and no worker has named it before{hint}\n",
        )
    assert call("queues", "pause", "media").out == "The queue media is paused; what runs goes on.\n"


def test_workers_are_listed_with_their_whole_ids(call: Call, db: Db) -> None:
    roster.beat(db, MEMBER, Report(current_jobs=[1]), lives_for=timedelta(minutes=1))
    answer = call("workers", "list")
    assert MEMBER.id in answer.out
    assert "1/4" in answer.out
    [worker] = call("workers", "list", "--json").json
    assert (worker["id"], worker["kinds"], worker["status"]) == (MEMBER.id, ["demo.hello"], "ACTIVE")
