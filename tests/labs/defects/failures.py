"""Of the catalogue of failures: rows FA to FE."""

from tests.labs.defects.model import Mutant, defect

_LEASES, _FUNCTIONS = "snapapp/jobs/rows/leases.py", "migrations/sql/queue/functions"

DEFECTS: dict[str, Mutant] = {
    "clock-of-the-client": defect(
        "FB1",
        "a host whose clock is an hour ahead takes every job from its worker",
        "jobs/rows/test_recover::test_a_host_whose_clock_is_ahead_takes_nothing_from_anybody",
        (
            "snapapp/jobs/rows/leases.py",
            "ELSE lock_expires_at < clock_timestamp()",
            "ELSE lock_expires_at < %(client)s",
        ),
        (
            "snapapp/jobs/rows/leases.py",
            '"running": None, "besides": [], ',
            '"running": None, "besides": [], "client": _now(), ',
        ),
        ("snapapp/jobs/rows/leases.py", '"worker": worker,', '"worker": worker, "client": _now(),'),
        (
            "snapapp/jobs/rows/leases.py",
            "_BEAT = ",
            ("def _now():\n    from datetime import UTC, datetime\n    return datetime.now(UTC)\n\n\n_BEAT = "),
        ),
    ),
    "name-not-on-disk": defect(
        "FE8",
        "a file is there, its name is not, after the power was cut",
        "storage/test_local::test_a_name_is_on_disk_before_it_is_said_to_be_there",
        ("snapapp/storage/local.py", "                    os.fsync(folder)\n", ""),
    ),
    "unordered-batch": defect(
        "FC5",
        "two who lock the same rows wait for each other in a circle",
        "jobs/rows/test_bulk::test_two_who_name_the_same_jobs_in_opposite_order_do_not_wait_in_a_circle",
        ("snapapp/jobs/rows/people/bulk.py", "sorted(set(ids))", "list(dict.fromkeys(ids))"),
    ),
    "children-outlive-their-worker": defect(
        "FD2",
        "a worker that is killed leaves its children running",
        "jobs/executors/test_children::test_a_worker_killed_at_once_leaves_no_process_behind",
        ("snapapp/jobs/executors/child.py", "    parentage.die_with(parent)\n", ""),
        ("snapapp/jobs/executors/reaper.py", "kill -9", "kill -0"),
    ),
    "one-row-shuts-recovery": defect(
        "FA18",
        "a row that PostgreSQL lets nobody write keeps all others from being recovered",
        "jobs/worker/test_neighbours::test_a_job_that_nobody_can_take_back_or_prune_stops_no_other",
        (_LEASES, "        if refused is None or is_away(error):\n            raise\n", "        raise\n"),
    ),
    "all-back-at-once": defect(
        "FA19",
        "what was lost together comes back in one moment",
        "jobs/rows/test_recover::test_recovered_jobs_come_back_spread_out",
        (_LEASES, "clock_timestamp() + random() * %(spread)s", "clock_timestamp() + %(spread)s"),
    ),
    "twice-in-the-night": defect(
        "FB3",
        "a time that comes twice when the clocks go back runs twice",
        "jobs/schedules/test_slots::test_a_time_that_comes_twice_runs_once_where_its_hour_is_named",
        ("snapapp/jobs/schedules/slots.py", "    if repeats:\n", "    if True:\n"),
    ),
    "skipped-in-silence": defect(
        "FB4",
        "a call that was left out because the one before still ran is left out in silence",
        "jobs/schedules/test_workers::test_a_call_that_takes_too_long_is_told_and_followed_by_one_not_by_many",
        ("snapapp/jobs/worker/duties.py", "            on_skip()\n", "            pass\n"),
    ),
    "a-pre-release": defect(
        "FB6",
        "APScheduler 4 is pinned",
        "jobs/schedules/test_workers::test_apscheduler_stays_below_its_pre_release",
        ("requirements.lock", "apscheduler==3.", "apscheduler==4."),
    ),
    "gap-believed": defect(
        "FB7",
        "a process that stood still believes that its leases go on",
        "jobs/worker/test_frozen::test_a_worker_that_stood_still_takes_its_leases_for_lost_by_its_own_clock",
        (
            "snapapp/jobs/worker/leases/held.py",
            "return now < job.leased_at + self._sure_for",
            "return True",
        ),
        (
            "snapapp/jobs/worker/leases/held.py",
            "return now >= job.leased_at + self._kill_after",
            "return False",
        ),
    ),
    "every-missed-slot": defect(
        "R41",
        "after an absence everything that was missed is run",
        "jobs/schedules/test_slots::test_missed_slots_are_dealt_with_as_declared"
        " jobs/schedules/test_scheduler::test_after_an_absence_every_slot_stands_in_the_ledger",
        ("snapapp/jobs/schedules/slots.py", "            return {*due[-1:]}\n", "            return {*due}\n"),
        (
            "snapapp/jobs/schedules/slots.py",
            'why = "missed: no worker was there for it in time, nor for those before it"',
            'why = ""',
        ),
    ),
    "never-analyzed-untold": defect(
        "FC3",
        "a table that was filled and of which the planner knows nothing is no finding",
        "jobs/doctor/test_tables::test_a_table_that_was_filled_and_never_analyzed_is_analyzed",
        (
            "snapapp/jobs/doctor/tables.py",
            "    if its.changed <= max(limits.unanalyzed,",
            "    if its.changed <= 10**9 + max(limits.unanalyzed,",
        ),
    ),
    "announced-one-by-one": defect(
        "FC6",
        "each job that is enqueued is announced by itself",
        "jobs/rows/test_functions::test_a_commit_announces_each_queue_once",
        (
            f"{_FUNCTIONS}/job_after_insert.sql",
            "pg_notify('snapapp_job', queue) FROM (SELECT DISTINCT queue FROM inserted) AS touched",
            "pg_notify('snapapp_job', queue || repeat(' ', (row_number() OVER ())::integer)) FROM inserted",
        ),
    ),
    "deafness-untold": defect(
        "FC7 FC8",
        "a worker that hears no NOTIFY says nothing of it",
        "jobs/doctor/test_work::test_a_worker_that_does_not_hear_is_told",
        ("snapapp/jobs/worker/self_description.py", "    if not listens:\n", "    if False:\n"),
    ),
    "no-word-after-a-restart": defect(
        "FC10",
        "right after the server's restart all leases count as ended",
        "jobs/rows/test_recover::test_recovery_waits_until_the_server_has_been_back_for_a_while",
        (
            _LEASES,
            "AND pg_postmaster_start_time() < clock_timestamp() - %(settled_for)s\n",
            "AND clock_timestamp() > now() - %(settled_for)s\n",
        ),
    ),
    "borrowed-uncounted": defect(
        "FC11",
        "the connections that jobs borrow are not in the budget",
        "jobs/worker/test_connections::test_the_budget_counts_them",
        ("snapapp/jobs/settings.py", "self.hooks + self.job_connections", "self.hooks"),
    ),
    "uncertain-is-lost": defect(
        "FC13 FE10",
        "an end whose commit was not confirmed counts as not written",
        "jobs/rows/test_settle::test_after_an_uncertain_commit_the_row_says_whether_it_landed",
        ("snapapp/jobs/rows/settle.py", "AND lease_seq = %(lease_seq)s + 1", "AND lease_seq = %(lease_seq)s"),
    ),
    "a-lock-as-an-accident": defect(
        "FC17",
        "a migration that gives up behind a long transaction does not say so",
        "postgres/test_migrate::test_a_migration_behind_an_idle_transaction_gives_up_and_can_be_repeated",
        ("snapapp/jobs/migrations.py", "psycopg.errors.LockNotAvailable", "psycopg.errors.DeadlockDetected"),
    ),
    "all-migrate-at-once": defect(
        "FC19",
        "several starters migrate one database at once",
        "postgres/test_migrate::test_of_several_starters_one_migrates_and_the_others_find_it_done",
        ("snapapp/jobs/migrations.py", "SELECT pg_advisory_xact_lock({_LOCK})", "SELECT {_LOCK}"),
    ),
    "a-nul-comes-in": defect(
        "FC21",
        "a text with a NUL goes to PostgreSQL, which has none",
        "jobs/test_model::test_what_is_not_json_is_refused_with_the_reason",
        ("snapapp/jobs/model.py", r"""    if "\\u0000" in text and""", "    if False and"),
    ),
    "bloat-untold": defect(
        "FC23",
        "an index that is much larger than its entries is no finding",
        "jobs/doctor/test_tables::test_an_index_much_larger_than_its_entries_is_told",
        (
            "snapapp/jobs/doctor/tables.py",
            "elif entries >= 0 and its_bytes > max(limits.index_bytes,",
            "elif entries >= 0 and its_bytes > 10**12 + max(limits.index_bytes,",
        ),
    ),
    "less-time-than-the-drain": defect(
        "FD7",
        "systemd kills what is still draining",
        "ops/test_linode::test_a_stop_lasts_longer_than_the_drain_and_spares_the_children",
        ("ops/linode/snapapp-supervisor.service", "TimeoutStopSec=45", "TimeoutStopSec=25"),
    ),
    "started-for-ever": defect(
        "FD9",
        "what crashes at its start is started again at once, and again",
        "ops/test_linode::test_a_service_that_cannot_start_is_left_alone_after_ten_starts_in_five_minutes"
        " jobs/fleet/test_supervisor::test_workers_that_never_come_to_work_are_tried_again_ever_more_slowly",
        ("ops/linode/snapapp-supervisor.service", "StartLimitBurst=10", "StartLimitBurst=1000"),
        ("snapapp/jobs/fleet/pool.py", "        if self._early > 1:\n", "        if self._early > 1000:\n"),
    ),
    "errors-that-break-their-teller": defect(
        "FD12",
        "an exception that cannot be printed breaks whoever describes it",
        "jobs/test_model::test_every_error_can_be_described",
        ("snapapp/jobs/model.py", "except BaseException as broken:", "except ZeroDivisionError as broken:"),
    ),
    "beyond-the-maximum": defect(
        "FD14",
        "jitter makes waits longer than the longest that was asked for",
        "jobs/test_retry::test_a_delay_lies_between_the_base_and_the_maximum",
        (
            "snapapp/jobs/retry.py",
            "settings.maximum.total_seconds() / (1 + settings.jitter)",
            "settings.maximum.total_seconds()",
        ),
        ("snapapp/jobs/retry.py", "        return min(delay, self._maximum)", "        return delay"),
    ),
    "jitter-that-is-none": defect(
        "FD15",
        "what failed together comes back together, a little later",
        "jobs/test_retry::test_what_failed_together_does_not_come_back_together",
        ("snapapp/jobs/retry.py", "(1 + self._jitter * random.random())", "(1 + self._jitter)"),
    ),
    "children-for-ever": defect(
        "FD16",
        "a child is kept however many jobs it has run, and however it has grown",
        "jobs/executors/test_children::test_a_child_is_replaced_after_so_many_jobs",
        (
            "snapapp/jobs/executors/children.py",
            "return has_left_something or is_big or self._jobs >=",
            "return has_left_something or self._jobs >= 10**6 +",
        ),
    ),
    "no-turns": defect(
        "FE1",
        "of a fair queue the tenant that came first is served to its end",
        "jobs/rows/limits/test_turns::test_tenants_of_a_fair_queue_take_turns_in_a_batch_and_from_one_to_the_next",
        (f"{_FUNCTIONS}/job_let_in.sql", "CASE WHEN is_fair THEN nth ELSE 0 END", "0"),
    ),
    "orphans-stay": defect(
        "FE4",
        "files that no row knows are kept for ever",
        "storage/test_sweep::test_objects_without_a_row_are_orphans",
        ("snapapp/storage/sweep.py", "        elif each.modified < before:\n", "        elif False:\n"),
    ),
    "missing-untold": defect(
        "FE5",
        "a row whose files are gone is not told",
        "storage/test_sweep::test_rows_without_their_objects_are_told",
        ("snapapp/storage/sweep.py", "    if not seen:\n        yield Missing(row.prefix)\n    elif", "    if"),
    ),
    "a-snap-before-its-job": defect(
        "FE6",
        "a snap is committed before its job is enqueued",
        "api/product/test_snaps::test_a_snap_without_its_job_never_was",
        (
            "snapapp/domain/marking.py",
            "        job_id = enqueue(queue.enqueue, db, snap, video)\n",
            "        db.commit()\n        job_id = enqueue(queue.enqueue, db, snap, video)\n",
        ),
    ),
    "any-size": defect(
        "FE7",
        "a payload may be as large as it likes",
        "jobs/test_enqueue::test_a_payload_that_is_too_large_is_refused",
        ("migrations/sql/queue/tables/snap_processing_job.sql", "octet_length(payload::text) <= 1572864)", "true)"),
    ),
    "idle-is-no-harm": defect(
        "FC1",
        "an idle transaction that keeps vacuum from its work is no finding",
        "jobs/doctor/test_server::test_an_idle_transaction_that_pins_xmin_is_named_at_once",
        (
            "snapapp/jobs/doctor/tables.py",
            "        if is_old or holder.is_idle:\n",
            "        if is_old and not holder.is_idle:\n",
        ),
    ),
    "nobody-cuts-the-line": defect(
        "FC9 FC12",
        "a check waits for a server that has fallen silent until it speaks again",
        "jobs/doctor/test_examination::test_a_server_that_falls_silent_in_the_middle_is_cut_off",
        ("snapapp/jobs/doctor/examination.py", "_cut_after(db, within + 0.5)", "_cut_after(db, within + 3600)"),
    ),
    "a-second-signal-is-the-first": defect(
        "FD8",
        "a second signal changes nothing",
        "cli/processes/test_worker::test_a_second_signal_ends_a_worker_now_and_hands_its_job_back",
        ("snapapp/jobs/process/foreground.py", " and len(signals.noted) < 2 and monotonic()", " and monotonic()"),
    ),
    "any-kind": defect(
        "FD11",
        "a worker takes kinds that it does not know",
        "jobs/rows/test_claim::test_kinds_that_nobody_here_knows_block_nobody_and_stay",
        (
            "snapapp/jobs/rows/claim.py",
            "AS wanted (kind, executor, at_most, at_once) USING (kind)\n     WHERE %(queues)s",
            "AS wanted (its_kind, executor, at_most, at_once) ON true\n     WHERE %(queues)s",
        ),
    ),
    "low-at-zero": defect(
        "FC16",
        "a disk is low when nothing at all is left",
        "jobs/doctor/test_server::test_a_disk_below_the_floor_is_critical",
        ("snapapp/jobs/doctor/server.py", "    if free >= floor:\n", "    if free >= 0:\n"),
    ),
    "the-dead-are-asked": defect(
        "FD3",
        "a job is given to a child that has died meanwhile",
        "jobs/executors/test_children::test_a_child_killed_while_it_waits_costs_no_attempt",
        (
            "snapapp/jobs/executors/children.py",
            "if self._pipes and self._group and not self._group.has_ended:",
            "if self._pipes and self._group:",
        ),
        ("snapapp/jobs/executors/children.py", "for is_last in (False, True):", "for is_last in (True,):"),
    ),
    "sockets-inherited": defect(
        "FD4",
        "a child starts with the connections of its worker open",
        "jobs/executors/test_children::test_a_child_has_no_connection_of_its_worker",
        (
            "snapapp/jobs/executors/children.py",
            "                pass_fds=their_ends,\n",
            (
                "                pass_fds=[\n"
                "                    *their_ends,\n"
                "                    *(int(file.name) for file in os.scandir('/proc/self/fd')"
                " if 'socket' in os.readlink(file)),\n"
                "                ],\n"
            ),
        ),
    ),
}
