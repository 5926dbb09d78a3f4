"""Of the worker service: rows W."""

from tests.labs.defects.model import Mutant, defect

_CLAIM, _SETTLE, _LEASES = (f"snapapp/jobs/rows/{name}.py" for name in ("claim", "settle", "leases"))
_WORKER, _SLOTS, _HEARTBEAT = (f"snapapp/jobs/worker/{name}.py" for name in ("worker", "slots", "leases/heartbeat"))
_FUNCTIONS = "migrations/sql/queue/functions"

DEFECTS: dict[str, Mutant] = {
    "beat-in-the-transaction-of-the-job": defect(
        "W23 W26 Q44 FA12",
        "what a running job's beat says is seen when the job has ended",
        "jobs/worker/test_leases::test_a_job_that_runs_for_longer_than_a_lease_keeps_it"
        " jobs/worker/test_leases::test_a_long_job_keeps_its_lease_by_beats",
        (
            "snapapp/jobs/worker/leases/heartbeat.py",
            "self._extend(db, jobs[start : start + _PAGE], sent_at)",
            "self._extend(db, [job for job in jobs[start : start + _PAGE] if job.started_at is None], sent_at)",
        ),
    ),
    "one-renewal-only": defect(
        "W23 W25 R16 Q22 D9",
        "each lease is renewed once and never again",
        "jobs/worker/test_leases::test_a_job_that_runs_for_longer_than_a_lease_keeps_it",
        (
            "snapapp/jobs/worker/leases/heartbeat.py",
            "        def beaten(some: Sequence[Job]) -> list[leases_rows.Beat]:\n",
            (
                "        def beaten(some: Sequence[Job]) -> list[leases_rows.Beat]:\n"
                "            some = [job for job in some if job.lease not in _BEATEN]\n"
                "            _BEATEN.update(job.lease for job in some)\n"
            ),
        ),
        ("snapapp/jobs/worker/leases/heartbeat.py", "_PAGE = 1000", "_BEATEN = set()\n_PAGE = 1000"),
    ),
    "renewal-goes-on": defect(
        "W24 R29",
        "the lease of a job that has ended is still asked for",
        "jobs/worker/test_leases::test_at_its_end_a_jobs_lease_is_not_extended_any_more",
        ("snapapp/jobs/worker/leases/held.py", "            del self._jobs[job.id]\n", "            pass\n"),
    ),
    "words-after-the-end": defect(
        "W18 W22",
        "a thread that an attempt has left behind goes on to report",
        "jobs/worker/test_leases::test_what_a_job_leaves_behind_says_nothing_after_its_end",
        ("snapapp/jobs/rows/notes.py", "(line.landed OR job.lease_seq = line.lease_seq)", "true"),
        ("snapapp/jobs/rows/notes.py", " AND job.lease_seq = note.lease_seq", ""),
    ),
    "silence-about-words": defect(
        "W20 W31",
        "nobody is told that a report cannot be written",
        "jobs/worker/test_leases::test_words_that_cannot_be_written_are_the_workers_trouble_and_come_later",
        (
            "snapapp/jobs/worker/notes.py",
            '                self._events.complain(self._worker, "write notes", error)\n',
            "",
        ),
    ),
    "another-name-for-interrupted": defect(
        "W36",
        "the event of a job that a stop interrupts has another name than the document's",
        "jobs/metrics/test_metrics::test_a_cancelled_and_an_interrupted_job_are_counted_as_such",
        ("snapapp/jobs/events.py", '"worker.job.interrupted"', '"worker.job.halted"'),
    ),
    "processed-untold": defect(
        "W34",
        "nobody is told that a processor has returned",
        "jobs/test_events::test_a_jobs_way_is_told_event_by_event",
        ("snapapp/jobs/worker/finish.py", "emit(events.JOB_PROCESSED, **facts)", "pass"),
    ),
    "errored-untold": defect(
        "W35",
        "nor that it has raised",
        "jobs/test_events::test_a_jobs_way_is_told_event_by_event",
        ("snapapp/jobs/worker/finish.py", "emit(events.JOB_ERRORED, **facts, error=failure.error)", "pass"),
    ),
    "options-ignored": defect(
        "W7 W14",
        "a worker does not look at the options that it is made with",
        "docs/test_documents::test_adr_022_a_worker_service_takes_a_queue_a_processor_and_options",
        (
            "snapapp/jobs/process/embedding.py",
            "JobsSettings(database_url=database, **options)",
            "JobsSettings(database_url=database)",
        ),
    ),
    "no-poll": defect(
        "W3 W13 R13 S3",
        "a worker that nobody wakes looks once an hour",
        "jobs/worker/test_worker::test_the_poll_finds_what_no_notify_announced",
        ("snapapp/jobs/worker/worker.py", "settings.poll_delay or _POLL_DELAY", "timedelta(hours=1)"),
    ),
    "one-at-a-time": defect(
        "W10",
        "nobody says how many jobs run at once, and it is one",
        "settings/test_settings::test_the_defaults_of_the_queue_are_those_that_were_decided",
        (
            "snapapp/settings/table.py",
            '"4", "Jobs run in threads at once',
            '"1", "Jobs run in threads at once',
        ),
    ),
    "one-rule-for-all-kinds": defect(
        "W47 M61 Q51",
        "the rule of a kind does not say how long its jobs are kept",
        "jobs/worker/test_pruning::test_a_kind_and_an_end_may_have_a_rule_of_their_own",
        ("snapapp/jobs/rows/retention.py", "IS NOT NULL THEN its.keep", "IS NOT NULL THEN %(keep)s::interval"),
    ),
    "never-looks": defect(
        "W1",
        "the duty that is to claim comes round and claims nothing",
        "jobs/worker/test_worker::test_a_job_that_is_enqueued_runs_and_keeps_its_result",
        (_WORKER, "        again_in = self.tick()\n        while", "        again_in = None\n        while"),
    ),
    "two-steps-to-claim": defect(
        "W2 W29 Q15 Q18 Q41 Q42 Q47 D18",
        "which jobs are due is found first, and they are locked later, whoever has them by then",
        "jobs/rows/test_claim::test_two_workers_at_once_never_get_the_same_job"
        " jobs/rows/test_claim::test_a_hundred_jobs_and_three_workers_make_a_hundred_completions"
        " docs/test_documents::test_stage_4_three_terminals_process_a_hundred_jobs_once_each",
        (_CLAIM, "share.jobs\n           FOR UPDATE SKIP LOCKED) AS job", "share.jobs) AS job"),
    ),
    "a-payload-is-what-comes": defect(
        "W4",
        "a processor that says what its payload is gets none",
        "jobs/test_payloads::test_a_payload_is_taken_as_its_type_and_comes_back_as_one",
        (
            "snapapp/jobs/payloads.py",
            "    if wanted is not None:\n        job.data",
            "    if wanted is False:\n        job.data",
        ),
    ),
    "result-forgotten": defect(
        "W5 Q27 R26",
        "a job is completed, and what it came to is nowhere",
        "jobs/rows/test_settle::test_a_completion_keeps_the_result_and_frees_the_lease",
        (_SETTLE, "result = done.result::jsonb,", "result = NULL,"),
    ),
    "delay-not-kept": defect(
        "W6 Q29 D3",
        "the wait before the next attempt is computed, and not written down",
        "jobs/rows/test_settle::test_a_failed_attempt_comes_back_after_its_delay",
        (_SETTLE, "coalesce(clock_timestamp() + its.delay, job.next_retry_at)", "job.next_retry_at"),
    ),
    "an-id-that-outlives": defect(
        "W8 R15 S13 FA14",
        "a worker that starts again has the id of the one before it",
        "jobs/test_events::test_a_worker_is_somebody_new_at_every_start",
        ("snapapp/jobs/worker/parts.py", "uuid.uuid4().hex", "uuid.uuid5(uuid.NAMESPACE_DNS, 'box').hex"),
    ),
    "as-soon-after-every-error": defect(
        "W9",
        "a worker that fails again and again asks as often as before",
        "jobs/test_retry::test_after_an_error_of_its_own_a_worker_waits_longer_each_time_but_not_for_long",
        ("snapapp/jobs/retry.py", "_BACKOFF(_state(min(failures, 10)))", "_BACKOFF(_state(1))"),
    ),
    "words-at-the-end-only": defect(
        "W16 W17",
        "what a job says is written when it has ended",
        "jobs/worker/test_worker::test_progress_and_log_lines_are_on_the_row_while_the_job_runs",
        ("snapapp/jobs/worker/notes.py", "if unwritten.landed is not False:", "if unwritten.landed:"),
    ),
    "a-job-without-a-voice": defect(
        "W19",
        "a processor that does not look for its worker cannot say anything",
        "jobs/worker/test_worker::test_progress_and_log_lines_are_on_the_row_while_the_job_runs",
        (_WORKER, "            job.channel = channel\n", "            pass\n"),
    ),
    "said-when-written": defect(
        "W21",
        "the time of a log line is when it was written, not when it was said",
        "jobs/rows/test_beat::test_progress_and_lines_are_kept_in_order_and_with_their_attempt",
        (
            "snapapp/jobs/rows/notes.py",
            "clock_timestamp() - make_interval(secs => line.age)",
            "clock_timestamp()",
        ),
    ),
    "anybody-beats": defect(
        "W27 FA3 D10",
        "whoever knows the id of a job extends its lease, and moves its progress",
        "jobs/rows/test_settle::test_a_worker_that_lost_its_lease_cannot_write",
        ("snapapp/jobs/rows/leases.py", " AND job.lease_seq = held.lease_seq\n     ORDER", "\n     ORDER"),
    ),
    "one-coroutine": defect(
        "W30",
        "coroutines wait one after the other",
        "jobs/executors/test_executors::test_coroutines_wait_side_by_side",
        (_SLOTS, "AsyncExecutor(coroutines, self._work_async", "AsyncExecutor(1, self._work_async"),
    ),
    "closed-untold": defect(
        "W32",
        "a worker ends without a word",
        "jobs/test_events::test_a_jobs_way_is_told_event_by_event",
        (_WORKER, "self.events.emit(events.WORKER_CLOSED, worker_id=self.id, reason=reason)", "pass"),
    ),
    "active-untold": defect(
        "W33 R51",
        "nobody is told that an attempt begins",
        "jobs/test_events::test_a_jobs_way_is_told_event_by_event",
        (
            _SLOTS,
            "                    emit(events.JOB_ACTIVE, **self._parts.facts(job))\n",
            "                    pass\n",
        ),
        (
            _SLOTS,
            "                self._events.emit(events.JOB_ACTIVE, **self._parts.facts(job))\n",
            "                pass\n",
        ),
    ),
    "pauses-untold": defect(
        "W37",
        "nobody is told that a queue is paused",
        "jobs/test_events::test_a_pause_a_beat_and_a_lost_worker_are_told",
        (_WORKER, "        self._report_pauses(answer.paused)\n", ""),
    ),
    "claims-until-the-end": defect(
        "W38",
        "a worker that is told to stop goes on to claim",
        "jobs/worker/test_worker::test_a_stop_lets_running_jobs_end_and_hands_waiting_ones_back",
        (_WORKER, "        self._claimer.is_paused = True\n", ""),
    ),
    "no-grace": defect(
        "W39 R30",
        "a stop interrupts what runs at once",
        "jobs/worker/test_worker::test_a_stop_lets_running_jobs_end_and_hands_waiting_ones_back",
        (_WORKER, "self._drain(deadline - min(_LAST_MOMENTS, seconds / 4), patiently=True)", "pass"),
    ),
    "leases-kept-at-the-end": defect(
        "W40",
        "a worker that leaves keeps its place on the roster, and says nothing of its end",
        "jobs/worker/test_worker::test_a_stop_lets_running_jobs_end_and_hands_waiting_ones_back",
        (_HEARTBEAT, "                roster.leave(db, self._member.id, reason)", "                pass"),
    ),
    "twice-is-an-error": defect(
        "W41",
        "a worker that was never started cannot be stopped",
        "jobs/worker/test_worker::test_stopping_twice_or_before_the_start_is_fine",
        (
            "snapapp/jobs/worker/duties.py",
            "        if self._scheduler.running:\n            with",
            "        if True:\n            with",
        ),
        (
            _WORKER,
            "            elif self._started:\n                self._stop(",
            "            elif True:\n                self._stop(",
        ),
    ),
    "a-state-more": defect(
        "W43 W44 R6",
        "a job that has ended well can be run again by hand, as one that failed",
        "jobs/rows/test_transitions::test_a_step_leads_where_the_table_says_and_is_refused_elsewhere",
        (f"{_FUNCTIONS}/retry_job.sql", "'FAILED', 'CANCELLED'", "'FAILED', 'CANCELLED', 'COMPLETED'"),
    ),
    "shorter-by-chance": defect(
        "W46 S6",
        "jitter makes waits shorter than what was asked for",
        "jobs/test_retry::test_a_delay_is_never_shorter_than_the_plain_one_of_the_attempt_before",
        ("snapapp/jobs/retry.py", "(1 + self._jitter * random", "(1 - self._jitter * random"),
    ),
    "reason-of-a-pause-forgotten": defect(
        "W48 R45",
        "why a queue was paused is not kept",
        "api/internal/test_queues::test_a_queue_is_paused_with_a_reason_and_resumed",
        (f"{_FUNCTIONS}/pause_queue.sql", "paused_reason = excluded.paused_reason", "paused_reason = NULL"),
    ),
    "permanent-comes-again": defect(
        "W51 S16",
        "an error that says that no attempt can help is tried again like any other",
        "jobs/worker/test_worker::test_permanent_errors_are_not_tried_again",
        ("snapapp/jobs/executors/attempt.py", "case Permanent() | InvalidJob():", "case InvalidJob():"),
    ),
    "a-snooze-costs-an-attempt": defect(
        "W53 FA6 D17",
        "a job that puts itself off, or that a stop hands back, has lost an attempt",
        "jobs/rows/test_settle::test_a_snoozed_job_gets_its_attempt_back"
        " jobs/rows/test_settle::test_a_job_handed_back_gets_its_attempt_back",
        (_SETTLE, "ELSE job.attempt_count - 1 END", "ELSE job.attempt_count END"),
    ),
}
