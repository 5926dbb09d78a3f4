"""Of the catalogue of failures: rows FA to FE."""

from tests.labs.defects.model import Mutant, defect

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
            '"running": None, "besides": []}',
            '"running": None, "besides": [], "client": _now()}',
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
        "storage/test_local",
        ("snapapp/storage/local.py", "                    os.fsync(folder)\n", ""),
    ),
    "unordered-batch": defect(
        "FC5",
        "two who lock the same rows wait for each other in a circle",
        "jobs/rows/test_bulk::test_two_who_name_the_same_jobs_in_opposite_order_do_not_wait_in_a_circle",
        ("snapapp/jobs/rows/bulk.py", "sorted(set(ids))", "list(dict.fromkeys(ids))"),
    ),
    "children-outlive-their-worker": defect(
        "FD2",
        "a worker that is killed leaves its children running",
        "jobs/executors/test_children::test_a_worker_killed_at_once_leaves_no_process_behind",
        ("snapapp/jobs/executors/child.py", "prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)", "prctl(0, 0)"),
        ("snapapp/jobs/executors/reaper.py", "kill -9", "kill -0"),
    ),
}
