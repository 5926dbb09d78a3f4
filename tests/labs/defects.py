"""Defects that queues are known for, and one for each row of the requirements whose test once passed without what it
is about: a few lines each, with the tests that must fail. `mutants` plants them."""

from dataclasses import dataclass

_CLAIM, _LEASES, _SETTLE = (f"snapapp/jobs/rows/{name}.py" for name in ("claim", "leases", "settle"))
_FENCES = (" AND job.lease_seq = done.lease_seq", " AND job.lease_seq = its.lease_seq")
_HEARTBEAT, _HELD, _SLOTS = (f"snapapp/jobs/worker/{name}.py" for name in ("heartbeat", "leases", "slots"))
_POOL, _SQL = "snapapp/jobs/fleet/pool.py", "migrations/sql/queue"
_ROWS, _WORKER, _HELD_JOBS, _HOOKS = (
    f"tests/jobs/{name}" for name in ("rows", "worker/test_worker.py", "worker/test_leases.py", "worker/test_hooks.py")
)
_FLEET = "tests/jobs/fleet/test_supervisor.py"

# What is too long for its line below.
_BEATEN = "        def beaten(some: Sequence[Job]) -> list[leases_rows.Beat]:\n"
_ONCE = (
    "            some = [job for job in some if job.lease not in _BEATEN]\n"
    "            _BEATEN.update(job.lease for job in some)\n"
)
_COMPLAINS = '                self._events.complain(self._worker, "write notes", error)\n'
_NO_OPTIONS = "JobsSettings(database_url=database)"
_A_DAY = "lives_for=86400 * self._settings.lease_for / self._settings.lease_for.total_seconds()"
_INDEX = (
    "CREATE INDEX snap_processing_job_spec ON snap_processing_job (unique_key, id)\n"
    "    WHERE unique_key >= 'spec:' AND unique_key < 'spec;';\n"
)
_NEXT_INDEX = "CREATE INDEX snap_processing_job_snap ON"
_INDEXED_LEASE = "CREATE INDEX held ON snap_processing_job (status, lock_expires_at);\n"
_ONE = '"WORKER_CONCURRENCY", whole(1, 1_000), "1"'
_BY_KIND = "ORDER BY rank DESC, kind, job.next_retry_at, job.id) AS place"
_OF_ATTEMPT = '" AND (%(attempt)s::integer IS NULL OR attempt = %(attempt)s)'
_ONE_TIME = "self.counts[bisect_left(BOUNDS, seconds)] += 1"


@dataclass(frozen=True, slots=True)
class Edit:
    file: str
    says: str
    instead: str


@dataclass(frozen=True, slots=True)
class Mutant:
    rows: str  # of docs/requirements.md that its tests are about
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


MUTANTS = {
    "no-fence": Mutant(
        "R18 D11",
        "whoever knows the id of a job may settle it",
        tuple(Edit(_SETTLE, fence, "") for fence in _FENCES),
        (f"{_ROWS}/test_settle.py",),
    ),
    "state-only-fence": Mutant(
        "R18 D11 FA1",
        "the same as long as anybody runs it: attempt 1 ends attempt 2",
        tuple(Edit(_SETTLE, fence, " AND job.status = 'RUNNING'") for fence in _FENCES),
        (f"{_ROWS}/test_settle.py", f"{_ROWS}/test_queue_model.py"),
    ),
    "attempt-counted-on-failure": Mutant(
        "Q9 FA5",
        "a run that kills its worker is never counted",
        (Edit(_CLAIM, "attempt_count = attempt_count + 1", "attempt_count = greatest(attempt_count, 1)"),),
        (f"{_ROWS}/test_recover.py",),
    ),
    "recovery-without-cap": Mutant(
        "Q24 FA5",
        "a job whose attempts are used up is run again, and again",
        (Edit("snapapp/jobs/model.py", "return self.attempt > self.max_attempts", "return False"),),
        (f"{_ROWS}/test_recover.py",),
    ),
    "beat-in-the-transaction-of-the-job": Mutant(
        "W23 FA12",
        "what a running job's beat says is seen when the job has ended",
        (
            Edit(
                "snapapp/jobs/worker/heartbeat.py",
                "            for page in _pages(jobs, 1000):",
                "            for page in _pages([job for job in jobs if job.started_at is None], 1000):",
            ),
        ),
        (f"{_HELD_JOBS}::test_a_job_that_runs_for_longer_than_a_lease_keeps_it",),
    ),
    "clock-of-the-client": Mutant(
        "FB1",
        "a host whose clock is an hour ahead takes every job from its worker",
        (
            Edit(_LEASES, "ELSE lock_expires_at < clock_timestamp()", "ELSE lock_expires_at < %(client)s"),
            Edit(_LEASES, '"running": None, "besides": []}', '"running": None, "besides": [], "client": _now()}'),
            Edit(_LEASES, '"worker": worker,', '"worker": worker, "client": _now(),'),
            Edit(
                _LEASES,
                "_BEAT = ",
                "def _now():\n    from datetime import UTC, datetime\n    return datetime.now(UTC)\n\n\n_BEAT = ",
            ),
        ),
        (f"{_ROWS}/test_recover.py",),
    ),
    "recovery-that-looks-first": Mutant(
        "D7 FA4",
        "which leases have ended is asked first, and the rows are taken later",
        (Edit(_LEASES, "ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED", "ORDER BY id LIMIT %(limit)s"),),
        (f"{_ROWS}/test_recover.py",),
    ),
    "effect-before-the-fence": Mutant(
        "Q31",
        "a hook's effect is committed before it is known whether the result lands",
        (
            Edit(
                "snapapp/jobs/worker/finish.py",
                "    with transaction(job) as db:\n        status = settle.settle(db, finished)\n",
                "    if processor.commit and isinstance(finished.outcome, Succeeded):\n"
                "        with transaction(job) as db:\n"
                "            processor.commit(db, job, _decoded(finished.outcome))\n"
                "    with transaction(job) as db:\n        status = settle.settle(db, finished)\n",
            ),
        ),
        (_HOOKS,),
    ),
    "name-not-on-disk": Mutant(
        "FE8",
        "a file is there, its name is not, after the power was cut",
        (Edit("snapapp/storage/local.py", "                    os.fsync(folder)\n", ""),),
        ("tests/storage/test_local.py",),
    ),
    "unordered-batch": Mutant(
        "FC5",
        "two who lock the same rows wait for each other in a circle",
        (Edit("snapapp/jobs/rows/bulk.py", "sorted(set(ids))", "list(dict.fromkeys(ids))"),),
        (f"{_ROWS}/test_bulk.py",),
    ),
    "children-outlive-their-worker": Mutant(
        "FD2",
        "a worker that is killed leaves its children running",
        (
            Edit("snapapp/jobs/executors/child.py", "prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)", "prctl(0, 0)"),
            Edit("snapapp/jobs/executors/reaper.py", "kill -9", "kill -0"),
        ),
        ("tests/jobs/executors/test_children.py",),
    ),
    "more-than-the-limit": Mutant(
        "Q19 FC4",
        "a claim takes what it has looked at, not what was asked for",
        (Edit(_CLAIM, "ARRAY(SELECT id FROM picked WHERE place <= at_most)", "ARRAY(SELECT id FROM picked)"),),
        (f"{_ROWS}/test_claim.py", f"{_ROWS}/test_limits.py"),
    ),
    # --- of rows that were once held by tests that passed without them ------------------------------------------
    "one-renewal-only": Mutant(
        "W23 W25 R16 Q22 D9",
        "each lease is renewed once and never again",
        (
            Edit(_HEARTBEAT, _BEATEN, _BEATEN + _ONCE),
            Edit(_HEARTBEAT, "def _leases(", "_BEATEN = set()\n\n\ndef _leases("),
        ),
        (f"{_HELD_JOBS}::test_a_job_that_runs_for_longer_than_a_lease_keeps_it",),
    ),
    "renewal-goes-on": Mutant(
        "W24 R29",
        "the lease of a job that has ended is still asked for",
        (Edit(_HELD, "            del self._jobs[job.id]\n", "            pass\n"),),
        (f"{_HELD_JOBS}::test_at_its_end_a_jobs_lease_is_not_extended_any_more",),
    ),
    "words-after-the-end": Mutant(
        "W18 W22",
        "a thread that an attempt has left behind goes on to report",
        (
            Edit("snapapp/jobs/rows/notes.py", "(line.landed OR job.lease_seq = line.lease_seq)", "true"),
            Edit("snapapp/jobs/rows/notes.py", " AND job.lease_seq = note.lease_seq", ""),
        ),
        (f"{_HELD_JOBS}::test_what_a_job_leaves_behind_says_nothing_after_its_end",),
    ),
    "silence-about-words": Mutant(
        "W20 W31",
        "nobody is told that a report cannot be written",
        (Edit("snapapp/jobs/worker/notes.py", _COMPLAINS, ""),),
        (f"{_HELD_JOBS}::test_words_that_cannot_be_written_are_the_workers_trouble_and_come_later",),
    ),
    "another-name-for-interrupted": Mutant(
        "W36",
        "the event of a job that a stop interrupts has another name than the document's",
        (Edit("snapapp/jobs/events.py", '"worker.job.interrupted"', '"worker.job.halted"'),),
        ("tests/jobs/metrics/test_metrics.py::test_a_cancelled_and_an_interrupted_job_are_counted_as_such",),
    ),
    "processed-untold": Mutant(
        "W34",
        "nobody is told that a processor has returned",
        (Edit(_SLOTS, "self._events.emit(events.JOB_PROCESSED, **facts)", "pass"),),
        ("tests/jobs/test_events.py::test_a_jobs_way_is_told_event_by_event",),
    ),
    "errored-untold": Mutant(
        "W35",
        "nor that it has raised",
        (Edit(_SLOTS, "self._events.emit(events.JOB_ERRORED, **facts, error=failure.error)", "pass"),),
        ("tests/jobs/test_events.py::test_a_jobs_way_is_told_event_by_event",),
    ),
    "options-ignored": Mutant(
        "W7 W14",
        "a worker does not look at the options that it is made with",
        (Edit("snapapp/jobs/process/embedding.py", "JobsSettings(database_url=database, **options)", _NO_OPTIONS),),
        ("tests/test_documents.py::test_adr_022_a_worker_service_takes_a_queue_a_processor_and_options",),
    ),
    "hanging-leavers-live": Mutant(
        "M10 M14",
        "a worker that is to leave and hangs is never killed",
        (Edit(_POOL, "                leaving.child.kill()\n", ""),),
        (f"{_FLEET}::test_a_worker_that_is_to_go_and_does_not_move_is_killed",),
    ),
    "youngest-leaves": Mutant(
        "M13",
        "of a pool that shrinks the youngest leaves",
        (Edit(_POOL, "self._retire(self._present[0]", "self._retire(self._present[-1]"),),
        (f"{_FLEET}::test_pools_are_scaled_paused_drained_and_stopped_by_command",),
    ),
    "a-day-on-the-roster": Mutant(
        "M43",
        "a worker that is silent stays on the roster for a day",
        (Edit(_HEARTBEAT, "lives_for=self._settings.lease_for", _A_DAY),),
        (f"{_HELD_JOBS}::test_a_row_of_the_roster_lasts_as_long_as_a_lease",),
    ),
    "connections-uncounted": Mutant(
        "M48",
        "a worker has a connection more than it says",
        (Edit("snapapp/jobs/settings.py", "return 7 + self.hooks", "return 6 + self.hooks"),),
        ("tests/jobs/worker/test_connections.py::test_a_worker_has_one_connection_for_each_duty_and_says_how_many",),
    ),
    "work-without-its-payload": Mutant(
        "R32",
        "what a job is to do is not in the hash of its work",
        (Edit(f"{_SQL}/functions/job_spec_key.sql", "coalesce(payload, '{}')", "'{}'::jsonb"),),
        ("tests/jobs/test_unique_keys.py::test_the_same_work_is_one_job_while_it_is_live",),
    ),
    "no-index-of-work": Mutant(
        "R10",
        "runs of the same work are looked for in the whole table",
        (Edit(f"{_SQL}/tables/snap_processing_job.sql", _INDEX, ""),),
        ("tests/jobs/test_unique_keys.py::test_the_runs_of_a_work_are_found_by_their_index",),
    ),
    "the-first-delay-again": Mutant(
        "R27 S6",
        "every attempt waits as long as the first",
        (Edit("snapapp/jobs/executors/attempt.py", "delay_after(job.attempt, wait,", "delay_after(1, wait,"),),
        ("tests/jobs/test_retry.py::test_the_second_failure_waits_longer_than_the_first",),
    ),
    "age-within-a-kind": Mutant(
        "S4 R12 Q16 W50",
        "age decides within a kind only",
        (Edit(_CLAIM, "ORDER BY rank DESC, job.next_retry_at, job.id) AS place", _BY_KIND),),
        (f"{_ROWS}/test_claim.py::test_age_decides_across_kinds_and_keys",),
    ),
    "no-poll": Mutant(
        "W3 W13 R13 S3",
        "a worker that nobody wakes looks once an hour",
        (Edit("snapapp/jobs/worker/worker.py", "settings.poll_delay or _POLL_DELAY", "timedelta(hours=1)"),),
        (f"{_WORKER}::test_the_poll_finds_what_no_notify_announced",),
    ),
    "a-lease-in-an-index": Mutant(
        "Q6 Q7 FC2",
        "an index holds what every beat changes",
        (Edit(f"{_SQL}/tables/snap_processing_job.sql", _NEXT_INDEX, _INDEXED_LEASE + _NEXT_INDEX),),
        (f"{_ROWS}/test_beat.py::test_no_index_holds_what_a_beat_changes_and_one_holds_what_runs",),
    ),
    "one-at-a-time": Mutant(
        "W10",
        "nobody says how many jobs run at once, and it is one",
        (Edit("snapapp/settings/table.py", '"WORKER_CONCURRENCY", whole(1, 1_000), "4"', _ONE),),
        ("tests/settings/test_settings.py::test_the_defaults_of_the_queue_are_those_that_were_decided",),
    ),
    # --- of others ----------------------------------------------------------------------------------------------
    "orphans-end-well": Mutant(
        "M9",
        "a worker whose supervisor has died ends with 0",
        (Edit("snapapp/jobs/fleet/worker_process.py", "PARENT_DIED = 13", "PARENT_DIED = 0"),),
        (f"{_FLEET}::test_the_exit_code_of_a_worker_without_a_supervisor_is_13",),
    ),
    "children-of-the-failed-wait": Mutant(
        "D16 R43",
        "a job whose parent failed waits for ever",
        (Edit(f"{_SQL}/functions/job_meet_parents.sql", "IF lost IS NOT NULL THEN", "IF false THEN"),),
        (f"{_ROWS}/test_parents.py",),
    ),
    "one-rule-for-all-kinds": Mutant(
        "W47 M61 Q51",
        "the rule of a kind does not say how long its jobs are kept",
        (Edit("snapapp/jobs/rows/retention.py", "IS NOT NULL THEN its.keep", "IS NOT NULL THEN %(keep)s::interval"),),
        ("tests/jobs/worker/test_pruning.py::test_a_kind_and_an_end_may_have_a_rule_of_their_own",),
    ),
    "anything-in-a-document": Mutant(
        "R24",
        "what a document of a job says and nobody knows is passed over",
        (Edit("snapapp/jobs/cli/spec.py", "if key not in known}", "if not known}"),),
        ("tests/jobs/cli/test_spec.py::test_what_is_wrong_with_a_document_is_said_with_its_place",),
    ),
    "all-attempts-in-a-file": Mutant(
        "R25",
        "the file of an attempt has what the others said",
        (Edit("snapapp/jobs/rows/views.py", _OF_ATTEMPT, '" AND (%(attempt)s::integer IS NULL OR true)'),),
        ("tests/jobs/cli/test_logs.py::test_lines_are_whole_in_order_and_do_not_steer_the_terminal",),
    ),
    "gone-schedules-fire": Mutant(
        "R35",
        "the command fires what nobody declares any more",
        (Edit("snapapp/jobs/cli/schedules.py", "if not its.declared_by and", "if False and"),),
        ("tests/jobs/cli/test_schedules.py::test_what_nobody_declares_any_more_is_left_alone",),
    ),
    "one-stands-for-one": Mutant(
        "R52",
        "an attempt that stands for many counts as one",
        (Edit("snapapp/jobs/rows/costs.py", "self.counts[bisect_left(BOUNDS, seconds)] += times", _ONE_TIME),),
        ("tests/jobs/metrics/test_metrics.py::test_one_attempt_that_stands_for_many_counts_as_many",),
    ),
    "no-way-back": Mutant(
        "R50",
        "who tried too many tokens is not told when to come back",
        (Edit("snapapp/api/http/middleware.py", '(b"retry-after", ', '(b"x-after", '),),
        ("tests/api/http/test_access.py::test_an_address_that_guesses_waits_and_its_neighbours_do_not",),
    ),
}
