"""Of safe claims: rows Q."""

from tests.labs.defects.model import Mutant, defect

_CLAIM, _LEASES, _ROSTER = (f"snapapp/jobs/rows/{name}.py" for name in ("claim", "leases", "roster"))
_SETTINGS = "snapapp/settings/table.py"

DEFECTS: dict[str, Mutant] = {
    "attempt-counted-on-failure": defect(
        "Q9 FA5",
        "a run that kills its worker is never counted",
        "jobs/rows/test_claim::test_a_claim_leases_the_job_and_counts_the_attempt"
        " jobs/rows/test_recover::test_a_job_that_kills_its_worker_ends_after_its_attempts",
        (
            "snapapp/jobs/rows/claim.py",
            "attempt_count = attempt_count + 1",
            "attempt_count = greatest(attempt_count, 1)",
        ),
    ),
    "recovery-without-cap": defect(
        "Q24 FA5",
        "a job whose attempts are used up is run again, and again",
        "jobs/rows/test_recover::test_a_lost_attempt_counts_unless_another_may_have_killed_it"
        " jobs/rows/test_recover::test_a_job_that_kills_its_worker_ends_after_its_attempts",
        ("snapapp/jobs/model.py", "return self.attempt > self.max_attempts", "return False"),
    ),
    "effect-before-the-fence": defect(
        "Q31",
        "a hook's effect is committed before it is known whether the result lands",
        "jobs/worker/test_hooks::test_commit_runs_in_the_transaction_that_completes_the_job",
        (
            "snapapp/jobs/worker/hooks.py",
            ("    with transaction(job) as db:\n        status = settle.settle(db, finished)\n"),
            (
                "    if processor.commit and isinstance(finished.outcome, Succeeded):\n"
                "        with transaction(job) as db:\n"
                "            processor.commit(db, job, _decoded(finished.outcome))\n"
                "    with transaction(job) as db:\n"
                "        status = settle.settle(db, finished)\n"
            ),
        ),
    ),
    "more-than-the-limit": defect(
        "Q19 Q43 D1 FC4",
        "a claim takes of each head as many as it wants of all",
        "jobs/rows/test_claim::test_a_claim_takes_at_most_its_limit",
        (_CLAIM, "ARRAY(SELECT id FROM picked WHERE place <= at_most)", "ARRAY(SELECT id FROM picked)"),
        (_CLAIM, "     WHERE place <= at_most\n     GROUP", "     GROUP"),
    ),
    "a-lease-in-an-index": defect(
        "Q6 Q7 FC2",
        "an index holds what every beat changes",
        "jobs/rows/test_beat::test_no_index_holds_what_a_beat_changes_and_one_holds_what_runs"
        " jobs/rows/test_beat::test_the_beats_of_a_long_job_are_hot",
        (
            "migrations/sql/queue/tables/snap_processing_job.sql",
            "CREATE INDEX snap_processing_job_snap ON",
            (
                "CREATE INDEX held ON snap_processing_job (status, lock_expires_at);\n"
                "CREATE INDEX snap_processing_job_snap ON"
            ),
        ),
    ),
    "held-by-nobody-known": defect(
        "Q1 R14",
        "the row of a job that runs does not say which worker holds it",
        "jobs/rows/test_claim::test_a_claim_leases_the_job_and_counts_the_attempt",
        (
            _CLAIM,
            "status = 'RUNNING', claimed_by = %(worker)s, locked_at = now(), lock_expires_at = now() +",
            "status = 'RUNNING', claimed_by = 'somebody', locked_at = now(), lock_expires_at = now() +",
        ),
    ),
    "locked-since-it-was-due": defect(
        "Q2 S7",
        "since when a job is held is not written down, but since when it was due",
        "jobs/rows/test_claim::test_a_claim_leases_the_job_and_counts_the_attempt",
        (
            _CLAIM,
            "locked_at = now(), lock_expires_at = now() +",
            "locked_at = next_retry_at, lock_expires_at = now() +",
        ),
    ),
    "leased-for-longer": defect(
        "Q3",
        "a claim gives a lease of another length than was asked for",
        "jobs/rows/test_claim::test_a_claim_leases_the_job_and_counts_the_attempt",
        (_CLAIM, "lock_expires_at = now() + %(lease_for)s", "lock_expires_at = now() + 2 * %(lease_for)s"),
    ),
    "start-never-written": defect(
        "Q5 M25",
        "the row of a job that runs does not say since when",
        "jobs/rows/test_beat::test_the_first_beat_of_a_running_job_writes_its_start",
        (
            _LEASES,
            "coalesce(job.started_at, clock_timestamp() - make_interval(secs => free.ran_for))",
            "job.started_at",
        ),
    ),
    "all-columns-that-there-are": defect(
        "Q8 FC18",
        "a prepared statement names no columns, and a new release adds one",
        "postgres/test_migrate::test_a_worker_goes_on_while_a_new_release_adds_a_column",
        ("snapapp/jobs/rows/settle.py", "RETURNING job.id\n", "RETURNING job.*\n"),
    ),
    "other-defaults": defect(
        "Q10 Q11 Q14",
        "a lease is half as long as decided, a beat comes twice as often, a claim takes ten times as many",
        "settings/test_settings::test_the_defaults_of_the_queue_are_those_that_were_decided",
        (
            _SETTINGS,
            'setting(milliseconds(1, DAY_MS), "60000", "How long a silent',
            'setting(milliseconds(1, DAY_MS), "30000", "How long a silent',
        ),
        (
            _SETTINGS,
            '"10000", "How often a worker says it lives',
            '"5000", "How often a worker says it lives',
        ),
        (_SETTINGS, '"100", "The most jobs claimed at once', '"1000", "The most jobs claimed at once'),
    ),
    "settings-stay-outside": defect(
        "Q12 Q13 R2 R17",
        "the worker's name and the interval of recovery are read, checked, shown, and never reach it",
        "settings/test_settings::test_every_setting_of_the_queue_reaches_it",
        (_SETTINGS, "            recover_every=self.job_recovery_interval,\n", ""),
        (_SETTINGS, "            worker_name=self.worker_id,\n", ""),
    ),
    "rare-recovery": defect(
        "Q13 W49",
        "lost jobs are looked for once an hour",
        "settings/test_settings::test_the_defaults_of_the_queue_are_those_that_were_decided",
        (
            _SETTINGS,
            '"15000", "How often to look for dead',
            '"3600000", "How often to look for dead',
        ),
    ),
    "an-ended-lease-is-free": defect(
        "Q17",
        "what runs is claimed by others, too, as soon as its lease has ended",
        "jobs/rows/test_claim::test_only_waiting_jobs_are_claimed",
        (
            _CLAIM,
            "job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate",
            "(job.status IN ('PENDING', 'RETRY_WAIT') OR job.lock_expires_at < now()) AND job.gate",
        ),
    ),
    "confirmed-not-extended": defect(
        "Q21 Q44 R16 S11",
        "a beat says that its worker lives, and leaves the leases as long as they were",
        "jobs/rows/test_beat::test_a_beat_extends_the_lease",
        (
            _LEASES,
            "locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + %(lease_for)s,",
            "locked_at = clock_timestamp(),",
        ),
    ),
    "only-of-the-living": defect(
        "Q23 Q45 D2",
        "only what a worker held that still stands on the roster is recovered",
        "jobs/rows/test_recover::test_a_lease_that_ended_is_recovered",
        (
            _LEASES,
            "ELSE lock_expires_at < clock_timestamp()\n",
            "ELSE lock_expires_at < clock_timestamp() AND claimed_by IN (SELECT id FROM job_worker)\n",
        ),
    ),
    "no-eye-for-neighbours": defect(
        "Q25 D2 D10",
        "no worker looks whether the processes beside it live",
        "jobs/worker/test_leases::test_a_dead_neighbours_jobs_come_back_at_once_and_only_the_running_one_is_charged",
        (
            "snapapp/jobs/worker/leases/recovery.py",
            "if other.is_here and processes.is_gone",
            "if False and processes.is_gone",
        ),
    ),
    "no-dead-letters": defect(
        "Q26 R28",
        "what has failed for good is cancelled instead of kept as a dead letter",
        "jobs/rows/test_settle::test_a_buried_job_is_a_dead_letter",
        ("snapapp/jobs/rows/settle.py", '_End(*job.lease, "FAILED"', '_End(*job.lease, "CANCELLED"'),
    ),
    "a-try-too-many": defect(
        "Q28 Q46 D4 D13 M24",
        "after its last attempt a job comes again once more",
        "jobs/worker/test_worker::test_a_failing_job_comes_again_after_its_delay_and_ends_in_the_dead_letters",
        (
            "snapapp/jobs/executors/attempt.py",
            "if job.attempt >= job.max_attempts:",
            "if job.attempt > job.max_attempts:",
        ),
    ),
    "what-failed-counts-as-done": defect(
        "Q30",
        "work that has failed is found as work that was done before",
        "jobs/test_unique_keys::test_work_that_was_done_before_is_found_with_its_result",
        ("migrations/sql/queue/functions/job_done_before.sql", "       AND job.status = 'COMPLETED'\n", ""),
    ),
    "claimed-uncounted": defect(
        "Q32 D6",
        "claims are counted, and not what they brought",
        "jobs/test_events::test_what_a_worker_did_is_counted_once_and_stands_on_the_roster",
        ("snapapp/jobs/worker/claiming/claimer.py", "counts.claimed += len(jobs)", "counts.claimed += 1"),
    ),
    "a-batch-counts-once": defect(
        "Q33 Q34 S26",
        "a batch of jobs that ended counts as one job",
        "jobs/metrics/test_metrics::test_every_way_to_end_is_counted_in_its_own_place",
        (_ROSTER, "self.completed += len(batch)", "self.completed += 1"),
        (_ROSTER, "self.failed += len(batch)", "self.failed += 1"),
    ),
    "tries-uncounted": defect(
        "Q35",
        "an attempt that will be repeated counts as one that put itself off",
        "jobs/metrics/test_metrics::test_every_way_to_end_is_counted_in_its_own_place",
        (_ROSTER, "self.retried += ", "self.snoozed += "),
    ),
    "recovered-uncounted": defect(
        "Q36",
        "what a worker took back from dead ones is not counted",
        "jobs/test_events::test_what_a_worker_did_is_counted_once_and_stands_on_the_roster",
        ("snapapp/jobs/worker/leases/recovery.py", "            self._counts.recovered += len(taken)\n", ""),
    ),
    "mean-of-all-times": defect(
        "Q37",
        "the mean duration is the longest one",
        "jobs/metrics/test_metrics::test_every_way_to_end_is_counted_in_its_own_place",
        (
            "snapapp/jobs/metrics/work.py",
            "round(sum(one.ran_ms for one in ended) / ran, 3)",
            "round(sum(one.ran_ms for one in ended), 3)",
        ),
    ),
    "stuck-unseen": defect(
        "Q38",
        "a job whose lease has ended is not told as stuck",
        "jobs/test_events::test_stuck_jobs_are_seen_in_a_view",
        (
            "migrations/sql/queue/views/queue_stuck.sql",
            "status = 'RUNNING' AND lock_expires_at < now()",
            "status = 'RUNNING' AND false",
        ),
    ),
    "numbers-of-nobody": defect(
        "Q39",
        "what each worker did is not told with its name",
        "jobs/metrics/test_metrics::test_what_each_worker_alive_did_is_told_and_how_old_the_oldest_beat_is",
        ("snapapp/jobs/metrics/workers.py", '{"worker": its.name, "id": its.id}', '{"worker": "", "id": its.id}'),
    ),
    "lines-without-a-worker": defect(
        "Q40 R3",
        "a log line does not say which worker it is about",
        "jobs/test_events::test_every_log_line_about_a_job_carries_the_promised_fields",
        ("snapapp/jobs/metrics/log_lines.py", '        ("workerId", "worker_id"),\n', ""),
    ),
    "no-alert-for-stuck-jobs": defect(
        "Q49",
        "jobs that nobody moves are no reason for an alert",
        "api/internal/test_metrics::test_stuck_jobs_and_long_ones_are_alerts",
        ("snapapp/api/internal/actuator/alerts.py", "    if depth.stuck:\n", "    if depth.stuck > 99:\n"),
    ),
}
