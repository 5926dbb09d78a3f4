"""Of the external worker: rows R."""

from tests.labs.defects.model import Mutant, defect

_CLAIM, _LEASES = (f"snapapp/jobs/rows/{name}.py" for name in ("claim", "leases"))
_COMMAND, _SQL = "snapapp/jobs/executors/command.py", "migrations/sql/queue"
_FUNCTIONS, _TABLE = f"{_SQL}/functions", f"{_SQL}/tables/snap_processing_job.sql"

DEFECTS: dict[str, Mutant] = {
    "no-fence": defect(
        "R18 D11",
        "whoever knows the id of a job may settle it",
        "jobs/rows/test_settle::test_a_worker_that_lost_its_lease_cannot_write",
        ("snapapp/jobs/rows/settle.py", " AND job.lease_seq = done.lease_seq", ""),
        ("snapapp/jobs/rows/settle.py", " AND job.lease_seq = its.lease_seq", ""),
    ),
    "state-only-fence": defect(
        "R18 D11 FA1",
        "the same as long as anybody runs it: attempt 1 ends attempt 2",
        "jobs/rows/test_settle::test_a_worker_that_lost_its_lease_cannot_write",
        ("snapapp/jobs/rows/settle.py", " AND job.lease_seq = done.lease_seq", " AND job.status = 'RUNNING'"),
        ("snapapp/jobs/rows/settle.py", " AND job.lease_seq = its.lease_seq", " AND job.status = 'RUNNING'"),
    ),
    "work-without-its-payload": defect(
        "R32",
        "what a job is to do is not in the hash of its work",
        "jobs/test_unique_keys::test_the_same_work_is_one_job_while_it_is_live",
        ("migrations/sql/queue/functions/job_spec_key.sql", "coalesce(payload, '{}')", "'{}'::jsonb"),
    ),
    "no-index-of-work": defect(
        "R10",
        "runs of the same work are looked for in the whole table",
        "jobs/test_unique_keys::test_the_runs_of_a_work_are_found_by_their_index",
        (
            "migrations/sql/queue/tables/snap_processing_job.sql",
            (
                "CREATE INDEX snap_processing_job_spec ON snap_processing_job (unique_key, id)\n"
                "    WHERE unique_key >= 'spec:' AND unique_key < 'spec;';\n"
            ),
            "",
        ),
    ),
    "the-first-delay-again": defect(
        "R27 S6",
        "every attempt waits as long as the first",
        "jobs/test_retry::test_the_second_failure_waits_longer_than_the_first",
        ("snapapp/jobs/executors/attempt.py", "delay_after(job.attempt, wait,", "delay_after(1, wait,"),
    ),
    "anything-in-a-document": defect(
        "R24",
        "what a document of a job says and nobody knows is passed over",
        "jobs/cli/test_spec::test_what_is_wrong_with_a_document_is_said_with_its_place",
        ("snapapp/jobs/cli/jobs/spec.py", "if key not in known}", "if not known}"),
    ),
    "all-attempts-in-a-file": defect(
        "R25",
        "the file of an attempt has what the others said",
        "jobs/cli/test_logs::test_lines_are_whole_in_order_and_do_not_steer_the_terminal",
        (
            "snapapp/jobs/rows/people/views.py",
            '" AND (%(attempt)s::integer IS NULL OR attempt = %(attempt)s)',
            '" AND (%(attempt)s::integer IS NULL OR true)',
        ),
    ),
    "gone-schedules-fire": defect(
        "R35",
        "the command fires what nobody declares any more",
        "jobs/cli/test_schedules::test_what_nobody_declares_any_more_is_left_alone",
        ("snapapp/jobs/cli/schedules.py", "if not its.declared_by and", "if False and"),
    ),
    "one-stands-for-one": defect(
        "R52",
        "an attempt that stands for many counts as one",
        "jobs/metrics/test_metrics::test_one_attempt_that_stands_for_many_counts_as_many",
        (
            "snapapp/jobs/rows/costs.py",
            "self.counts[bisect_left(BOUNDS, seconds)] += times",
            "self.counts[bisect_left(BOUNDS, seconds)] += 1",
        ),
    ),
    "no-way-back": defect(
        "R50",
        "who tried too many tokens is not told when to come back",
        "api/http/test_access::test_an_address_that_guesses_waits_and_its_neighbours_do_not",
        ("snapapp/api/http/requests/middleware.py", '(b"retry-after", ', '(b"x-after", '),
    ),
    "deaf-to-signals": defect(
        "R1",
        "SIGTERM ends the command there and then, with what it runs",
        "cli/processes/test_worker::test_a_stopped_worker_finishes_what_it_runs",
        (
            "snapapp/jobs/os/signals.py",
            "ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)",
            "ENDING = (signal.SIGINT, signal.SIGHUP)",
        ),
    ),
    "unexplained": defect(
        "R4 S8",
        "a view of the queue says nothing about itself in psql",
        "postgres/test_migrate::test_everything_that_people_see_in_psql_is_explained",
        (
            "migrations/sql/queue/views/queue_stuck.sql",
            "COMMENT ON VIEW queue_stuck IS",
            "--",
        ),
    ),
    "an-index-for-nobody": defect(
        "R9",
        "the index of what waits is in the order of ids",
        "jobs/rows/test_statements::test_no_hot_statement_reads_a_table_that_has_grown_since_it_was_planned",
        (
            _TABLE,
            "snap_processing_job_waiting ON snap_processing_job (queue, kind, priority, next_retry_at, id)",
            "snap_processing_job_waiting ON snap_processing_job (id)",
        ),
    ),
    "free-while-it-runs": defect(
        "R11 FE9",
        "while a job runs another one with its key is added",
        "jobs/test_unique_keys::test_a_key_is_held_as_long_as_its_scope_says",
        (
            _TABLE,
            "WHERE unique_scope = 'live' AND status IN ('PENDING', 'RETRY_WAIT', 'RUNNING');",
            "WHERE unique_scope = 'live' AND status IN ('PENDING', 'RETRY_WAIT');",
        ),
    ),
    "every-queue": defect(
        "R19",
        "a worker that was told its queues claims from all of them",
        "jobs/rows/test_claim::test_a_worker_claims_from_its_queues_only",
        (_CLAIM, "     WHERE %(queues)s::text[] IS NULL OR its.queue = ANY (%(queues)s)\n), ready", "), ready"),
    ),
    "a-program-without-its-job": defect(
        "R20 R21",
        "a program finds nothing of its payload on its standard input",
        "jobs/executors/test_command::test_a_program_reads_its_job_and_its_answer_is_the_result",
        (
            _COMMAND,
            'json.dumps(about).encode(), job.payload_json or b"{}", parents)',
            'json.dumps(about).encode(), b"{}", parents)',
        ),
    ),
    "what-a-program-says-is-right": defect(
        "R22",
        "a program that says that it failed has succeeded",
        "jobs/executors/test_command::test_the_programs_own_error_and_traceback_are_kept",
        (_COMMAND, '    if not envelope["ok"]:', "    if False:"),
    ),
    "any-program": defect(
        "R23",
        "a program that a payload names is run, whatever the list says",
        "jobs/executors/test_command::test_only_allowed_programs_run",
        (_COMMAND, "if not is_listed and (allowed or not processor.command):", "if not is_listed and allowed:"),
    ),
    "drained-too-early": defect(
        "R34",
        "the command that is to drain ends after one claim",
        "cli/processes/test_worker::test_drain_runs_what_is_due_and_leaves_the_rest",
        (
            "snapapp/jobs/process/foreground.py",
            " and worker.is_idle and _is_drained(database, worker, runtime)",
            "",
        ),
    ),
    "an-empty-copy": defect(
        "R36 R48",
        "what is replayed has no payload",
        "jobs/rows/test_functions::test_a_replay_is_a_copy_that_begins_anew",
        (f"{_FUNCTIONS}/replay_job.sql", "payload => job.payload, ", ""),
    ),
    "unheard-wishes": defect(
        "R37 D17",
        "a beat does not say that somebody wants a job to stop",
        "jobs/rows/test_beat::test_a_beat_brings_the_wish_to_cancel"
        " api/internal/test_jobs::test_a_waiting_job_is_cancelled_and_a_running_one_is_asked",
        (_LEASES, "RETURNING job.id, job.cancel_requested_at IS NOT NULL", "RETURNING job.id, false"),
        (
            f"{_FUNCTIONS}/cancel_job.sql",
            "ELSIF job.status IN ('PENDING', 'RETRY_WAIT') THEN",
            "ELSIF job.status IN ('PENDING') AND false THEN",
        ),
    ),
    "attempts-used-up-for-ever": defect(
        "R38",
        "what a person runs again has no attempts left",
        "jobs/rows/test_functions::test_a_retry_by_a_person_starts_the_count_again_and_keeps_the_history",
        (
            f"{_FUNCTIONS}/retry_job.sql",
            "lease_seq = lease_seq + 1, attempt_count = 0, interruptions",
            "lease_seq = lease_seq + 1, interruptions",
        ),
    ),
    "logs-for-ever": defect(
        "R39 S15",
        "the log lines of a job outlive it",
        "jobs/rows/test_recover::test_old_ends_are_pruned_with_their_lines_and_nothing_else_is",
        (
            "snapapp/jobs/rows/retention.py",
            "    DELETE FROM job_log WHERE job_id = ANY (ARRAY(SELECT id FROM gone))\n",
            "    SELECT 1\n",
        ),
    ),
    "a-limit-for-each-claim": defect(
        "R40 D14",
        "a limit counts what one claim takes, and not what runs already",
        "jobs/rows/limits/test_limits::test_a_key_has_as_many_running_as_its_limit",
        (f"{_FUNCTIONS}/job_limit_room.sql", "greatest(0, max_running - running) END", "max_running END"),
    ),
    "slots-twice": defect(
        "R41 FB5 FD5",
        "two who look at a schedule at once both fire its slot",
        "jobs/schedules/test_scheduler::test_of_many_that_look_at_once_one_fires"
        " jobs/schedules/test_workers::test_several_workers_fire_each_slot_once",
        ("snapapp/jobs/schedules/ledger.py", " AND settled_until = %(after)s\n", "\n"),
        (f"{_SQL}/tables/job_schedule_slot.sql", "PRIMARY KEY (schedule, slot),", "UNIQUE (schedule, slot, job_id),"),
    ),
    "tokens-without-end": defect(
        "R42",
        "what a rate lets start is not taken from its tokens",
        "jobs/rows/limits/test_rates::test_a_rate_lets_a_burst_start_and_says_when_the_next_may",
        (
            f"{_FUNCTIONS}/job_limit_room.sql",
            "burst - rate * greatest(0, extract(epoch FROM full_at - clock_timestamp())::float8) AS left_over",
            "burst::float8 AS left_over",
        ),
    ),
    "no-ageing": defect(
        "R44",
        "however long a job waits, its priority stays what it was",
        "jobs/rows/test_claim::test_a_queue_that_ages_promotes_what_waits_long",
        (_CLAIM, "CASE WHEN ages_after IS NULL THEN 0", "CASE WHEN true THEN 0"),
    ),
    "ids-in-another-order": defect(
        "R46",
        "the ids of many that were enqueued come in the order of their keys",
        "jobs/test_enqueue::test_ids_come_in_the_order_of_the_array",
        (
            f"{_FUNCTIONS}/enqueue_jobs.sql",
            "SELECT made.id FROM made ORDER BY made.place;",
            "SELECT made.id FROM made ORDER BY made.id;",
        ),
    ),
    "lines-of-the-first-look": defect(
        "R49",
        "whoever follows a job's log reads what was there, and nothing that comes",
        "jobs/rows/test_changes::test_jobs_that_were_named_are_watched_to_their_end_with_their_log",
        (
            "snapapp/jobs/rows/people/changes.py",
            "        for line in _lines_since(db, self._last_lines):\n            lines.append(line)\n",
            "        for line in _lines_since(db, self._last_lines):\n",
        ),
    ),
    "what-waits-to-come-again-uncounted": defect(
        "R47",
        "a queue's numbers leave out what waits to be tried again",
        "api/internal/test_queues::test_queues_are_counted",
        ("snapapp/jobs/rows/people/overviews.py", "count(*) FILTER (WHERE status = 'RETRY_WAIT')", "0"),
    ),
}
