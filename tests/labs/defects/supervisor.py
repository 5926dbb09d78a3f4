"""Of the supervisor: rows M."""

from tests.labs.defects.model import Mutant, defect

_POOL, _SUPERVISOR, _PROCESS, _STORE, _COMMANDS, _SCALING = (
    f"snapapp/jobs/fleet/{name}.py" for name in ("pool", "supervisor", "worker_process", "store", "commands", "scaling")
)
_FUNCTIONS = "migrations/sql/queue/functions"

DEFECTS: dict[str, Mutant] = {
    "hanging-leavers-live": defect(
        "M10 M14",
        "a worker that is to leave and hangs is never killed",
        "jobs/fleet/test_supervisor::test_a_worker_that_is_to_go_and_does_not_move_is_killed",
        ("snapapp/jobs/fleet/pool.py", "                leaving.child.kill()\n", ""),
    ),
    "youngest-leaves": defect(
        "M13",
        "of a pool that shrinks the youngest leaves",
        "jobs/fleet/test_supervisor::test_pools_are_scaled_paused_drained_and_stopped_by_command",
        ("snapapp/jobs/fleet/pool.py", "self._retire(self._present[0]", "self._retire(self._present[-1]"),
    ),
    "a-day-on-the-roster": defect(
        "M43",
        "a worker that is silent stays on the roster for a day",
        "jobs/worker/test_leases::test_a_row_of_the_roster_lasts_as_long_as_a_lease",
        (
            "snapapp/jobs/worker/leases/heartbeat.py",
            "lives_for=self._parts.settings.lease_for",
            "lives_for=86400 * (its := self._parts.settings.lease_for) / its.total_seconds()",
        ),
    ),
    "connections-uncounted": defect(
        "M48",
        "a worker has a connection more than it says",
        "jobs/worker/test_connections::test_a_worker_has_one_connection_for_each_duty_and_says_how_many",
        ("snapapp/jobs/settings.py", "return 7 + self.hooks", "return 6 + self.hooks"),
    ),
    "orphans-end-well": defect(
        "M9",
        "a worker whose supervisor has died ends with 0",
        "jobs/fleet/test_supervisor::test_the_exit_code_of_a_worker_without_a_supervisor_is_13",
        ("snapapp/jobs/fleet/worker_process.py", "PARENT_DIED = 13", "PARENT_DIED = 0"),
    ),
    "two-masters": defect(
        "M1",
        "a host takes a second supervisor",
        "jobs/fleet/test_commands::test_of_two_masters_that_start_at_once_one_gets_the_host",
        (_STORE, " WHERE held.id = %(instead)s OR held.expires_at <= now()\n", ""),
    ),
    "pools-of-another-plan": defect(
        "M2 M50",
        "what the plan says of a pool does not reach it",
        "jobs/fleet/test_plan::test_a_plan_is_read_whole"
        " jobs/fleet/test_supervisor_at_rest::test_the_pools_of_the_plan_come_to_work_and_stand_on_the_roster",
        (
            "snapapp/jobs/fleet/plan_file.py",
            "plan = Plan(pools=tuple(pools[environment])",
            "plan = Plan(pools=tuple(next(iter(pools.values())))",
        ),
        (_SUPERVISOR, "grace=self._grace) for each in plan.pools}", "grace=self._grace) for each in plan.pools[:1]}"),
    ),
    "looks-untold": defect(
        "M3 M58",
        "nobody is told that a supervisor looked at its pools",
        "jobs/fleet/test_supervisor_at_rest::test_every_look_is_an_event_for_whoever_listens",
        (_SUPERVISOR, "            self._tell(events.MASTER_LOOPED)", "            pass"),
    ),
    "an-end-without-its-workers": defect(
        "M4 M35 M36 M41 FD6",
        "a signal ends the supervisor, and nobody tells its workers",
        "jobs/fleet/test_supervisor::test_sigterm_lets_running_jobs_finish_and_leaves_nothing_behind",
        (_POOL, "            leaving.child.signal(signal.SIGTERM)\n", "            pass\n"),
    ),
    "trouble-untold": defect(
        "M5",
        "a worker that cannot be started is tried again, and nobody knows why",
        "jobs/fleet/test_supervisor::test_a_supervisor_that_cannot_start_workers_says_why_and_goes_on",
        (_POOL, "            self._hold_back(str(error))\n", ""),
    ),
    "one-process-a-pool": defect(
        "M7 M12",
        "a pool of two has one",
        "jobs/fleet/test_supervisor_at_rest::test_the_pools_of_the_plan_come_to_work_and_stand_on_the_roster",
        (
            _POOL,
            "        while len(self._present) < self.wanted and",
            "        while len(self._present) < min(1, self.wanted) and",
        ),
    ),
    "the-dead-are-present": defect(
        "M8 M11",
        "a worker that was killed still counts as one of its pool",
        "jobs/fleet/test_supervisor::test_a_worker_that_is_killed_is_replaced_and_its_jobs_run_again",
        (_POOL, "        self._present.remove(child)\n        self._notice_work()", "        self._notice_work()"),
    ),
    "without-a-pool-on-the-roster": defect(
        "M15 M42",
        "the roster does not say which pool a worker is of",
        "jobs/fleet/test_supervisor_at_rest::test_the_pools_of_the_plan_come_to_work_and_stand_on_the_roster"
        " jobs/fleet/test_commands::test_the_roster_has_the_fields_of_the_registry",
        ("snapapp/jobs/rows/roster.py", '"pool": its and its.pool,', '"pool": None,'),
    ),
    "no-limit-of-jobs": defect(
        "M16 M18 M19 M22",
        "a worker does as many jobs as come, whatever its plan says",
        "jobs/fleet/test_supervisor::test_a_worker_is_replaced_after_its_jobs_and_none_of_them_is_cut_off",
        (
            _PROCESS,
            "if its.max_jobs is not None and self.done >= its.max_jobs:",
            "if its.max_jobs is not None and self.done < 0:",
        ),
    ),
    "a-limit-cuts-off": defect(
        "M17 D17",
        "a worker that has reached its time leaves in the middle of a job",
        "jobs/fleet/test_supervisor::test_a_limit_of_time_waits_for_the_job_that_runs",
        (_PROCESS, "        while not (self._worker.is_idle or self._worker.is_overdue):", "        while False:"),
    ),
    "deaf-to-notify": defect(
        "M20",
        "a NOTIFY wakes nobody",
        "jobs/worker/test_worker::test_a_notify_wakes_the_worker_long_before_its_poll",
        ("snapapp/jobs/worker/worker.py", "            self.wake(queue=queue)", "            pass"),
    ),
    "no-token": defect(
        "M23",
        "a claim gives the same token as the one before it",
        "jobs/rows/test_claim::test_a_claim_leases_the_job_and_counts_the_attempt",
        (
            "snapapp/jobs/rows/claim.py",
            "greatest(lease_seq + 1, (date_part('epoch', now()) * 1000000)::bigint),",
            "lease_seq,",
        ),
    ),
    "anybodys-commands": defect(
        "M27",
        "a supervisor takes what another host was told",
        "jobs/fleet/test_commands::test_a_host_takes_only_what_it_was_told",
        (
            _COMMANDS,
            "WHERE host = %(host)s AND status = 'PENDING' AND expires_at > now()",
            "WHERE status = 'PENDING' AND expires_at > now()",
        ),
    ),
    "unannounced": defect(
        "M28",
        "a command waits in its row, and its host is not told",
        "jobs/fleet/test_commands::test_a_command_waits_in_its_row_and_is_announced_to_its_host",
        (f"{_FUNCTIONS}/command_fleet.sql", "    PERFORM pg_notify('snapapp_fleet', addressed);\n", ""),
    ),
    "taken-twice": defect(
        "M29",
        "a command is carried out by whoever reads it, once more by the next",
        "jobs/fleet/test_commands::test_a_command_is_taken_once_whoever_asks",
        (_COMMANDS, "ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED", "ORDER BY id LIMIT 100"),
        (_COMMANDS, "UPDATE job_command SET status = 'TAKEN', master", "UPDATE job_command SET master"),
    ),
    "scaled-in-words": defect(
        "M30 M32",
        "a command to scale is answered, and nothing is scaled",
        "jobs/fleet/test_supervisor::test_pools_are_scaled_paused_drained_and_stopped_by_command",
        (_SUPERVISOR, "            pool.scale(processes)\n", "            pass\n"),
    ),
    "an-error-ends-the-listener": defect(
        "M31",
        "a command that cannot be done ends the supervisor that was told it",
        "jobs/fleet/test_supervisor_at_rest::test_a_command_that_cannot_be_done_fails_with_the_reason",
        (
            _SUPERVISOR,
            "        except InvalidCommand as error:\n            output = str(error)\n        except Exception",
            "        except ZeroDivisionError",
        ),
    ),
    "silent-hosts": defect(
        "M33 D19",
        "a command that nobody takes waits for ever, and says nothing of it",
        "jobs/fleet/test_commands::test_a_command_that_nobody_takes_expires_and_says_so",
        (
            "migrations/sql/queue/views/command_overview.sql",
            "THEN 'EXPIRED' ELSE command.status END",
            "THEN command.status ELSE command.status END",
        ),
    ),
    "a-reload-is-nothing": defect(
        "M37",
        "SIGUSR2 replaces no worker",
        "jobs/fleet/test_supervisor::test_sigusr2_replaces_every_worker_without_a_gap",
        (_POOL, "        self._outdated = list(self._present)\n", ""),
    ),
    "a-pause-of-old-workers": defect(
        "M38 M39",
        "a worker that starts while its pool is paused claims",
        "jobs/fleet/test_supervisor::test_sigusr1_pauses_all_pools_and_sigcont_resumes_them",
        (
            _POOL,
            "self._start_worker(self.planned, self.state is State.PAUSED)",
            "self._start_worker(self.planned, False)",
        ),
    ),
    "no-time-limit": defect(
        "M40 FD1 D13",
        "what runs in a process of its own may run for ever",
        "jobs/executors/test_executors::test_a_child_is_killed_at_its_time_limit",
        ("snapapp/jobs/executors/children.py", "job.deadline or monotonic(), timeout,", "monotonic() + 3600, timeout,"),
    ),
    "current-jobs-untold": defect(
        "M44",
        "the roster does not say what a worker runs",
        "jobs/worker/test_leases::test_what_runs_is_seen_with_its_worker_and_since_when",
        (
            "snapapp/jobs/worker/leases/heartbeat.py",
            "current_jobs=[job.id for job in jobs if job.started_at is not None][:1000]",
            "current_jobs=[]",
        ),
    ),
    "ends-forgotten": defect(
        "M45",
        "of a worker that was killed nobody writes down how it ended",
        "jobs/fleet/test_commands::test_the_claims_of_a_fallen_worker_are_free_at_once_and_the_attempts_stay_charged",
        (_STORE, "        roster.leave(db, worker, ended.end)\n", ""),
    ),
    "context-never-entered": defect(
        "M47 M49",
        "a processor runs outside of the context of its job's tenant",
        "jobs/test_context::test_each_job_runs_in_the_context_of_its_tenant",
        (
            "snapapp/jobs/context.py",
            "        with self(job):\n            return function(job)",
            "        return function(job)",
        ),
        (
            "snapapp/jobs/context.py",
            "        with self(job):\n            return await function(job)",
            "        return await function(job)",
        ),
    ),
    "fixed-pools-move": defect(
        "M51",
        "a pool whose size is fixed begins with its fewest",
        "jobs/fleet/test_scaling::test_a_pool_that_is_off_always_has_its_most",
        (_SCALING, 'Decision(pool.max_processes, "balance is off")', 'Decision(pool.min_processes, "balance is off")'),
    ),
    "rounded-down": defect(
        "M52",
        "a pool has no process for what is left over",
        "jobs/fleet/test_scaling::test_a_simple_pool_follows_the_formula",
        (_SCALING, "ceil(size / pool.threshold)", "size // pool.threshold"),
    ),
    "rate-of-all-times": defect(
        "M53",
        "how fast jobs go counts those that ended minutes ago",
        "jobs/fleet/test_commands::test_how_fast_jobs_come_and_go_is_measured",
        (_STORE, "count(*) FILTER (WHERE finished_at > now() - %(goes)s::interval) AS jobs", "count(*) AS jobs"),
    ),
    "leaps": defect(
        "M54",
        "a pool grows to what it needs in one step",
        "jobs/fleet/test_scaling::test_it_grows_by_one_step_when_more_is_due_than_will_be_cleared_in_time",
        (_SCALING, "state.present + min(pool.max_shift, _missing(state))", "state.present + _missing(state)"),
    ),
    "no-cooldown": defect(
        "M55 FD10",
        "a pool changes as often as somebody looks",
        "jobs/fleet/test_scaling::test_it_does_not_move_before_its_cooldown_is_over",
        (_SCALING, "    if state.since_change < _ALMOST * pool.cooldown.total_seconds():\n", "    if False:\n"),
    ),
    "first-come-first-served": defect(
        "M56",
        "pools share a host alike, whatever waits for them",
        "jobs/fleet/test_scaling::test_a_lid_over_all_pools_is_shared_by_the_time_to_clear",
        (_SCALING, "    return float(state.load.due) if", "    return 1.0\n    return float(state.load.due) if"),
    ),
    "the-row-of-an-orphan": defect(
        "M57",
        "an orphan that does not leave is left alone",
        "jobs/fleet/test_supervisor::test_an_orphan_that_does_not_leave_is_ended_by_the_next_supervisor",
        (
            "snapapp/jobs/fleet/database_thread.py",
            "            _signal_exactly(pid, started, signal.SIGKILL)\n",
            "",
        ),
    ),
    "events-of-other-facts": defect(
        "M58",
        "the page of the events promises another name than the code has",
        "jobs/test_events::test_every_event_says_what_the_documentation_says",
        ("snapapp/jobs/events.py", '"master.supervisor.looped"', '"master.looped"'),
    ),
}
