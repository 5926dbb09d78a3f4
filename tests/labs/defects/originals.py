"""Defects that the originals have: rows D."""

from tests.labs.defects.model import Mutant, defect

DEFECTS: dict[str, Mutant] = {
    "recovery-that-looks-first": defect(
        "D7 FA4",
        "which leases have ended is asked first, and the rows are taken later",
        "jobs/rows/test_recover::test_a_lease_is_either_renewed_or_recovered_never_both"
        " jobs/rows/test_recover::test_recovery_skips_a_lease_that_is_being_renewed",
        (
            "snapapp/jobs/rows/leases.py",
            "ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED",
            "ORDER BY id LIMIT %(limit)s",
        ),
    ),
    "children-of-the-failed-wait": defect(
        "D16 R43",
        "a job whose parent failed waits for ever",
        "jobs/rows/test_parents::test_a_child_that_is_added_after_the_failure_ends_like_one_that_waited",
        ("migrations/sql/queue/functions/job_meet_parents.sql", "IF lost IS NOT NULL THEN", "IF false THEN"),
    ),
    "what-waited-is-charged": defect(
        "D5",
        "what a dead worker had not begun has lost an attempt",
        "jobs/rows/test_recover::test_a_dead_worker_gives_back_what_it_had_not_begun",
        ("snapapp/jobs/rows/leases.py", "           WHEN NOT lost.ran THEN attempt_count - 1\n", ""),
    ),
    "nothing-is-tried-again": defect(
        "D8",
        "a failure of the network ends a snap for good",
        "processing/test_media_work::test_a_server_that_is_busy_is_worth_another_attempt",
        (
            "snapapp/processing/media_work.py",
            "except (Refused, sources.SourceRefused, Invalid) as error:",
            "except Exception as error:",
        ),
    ),
    "what-is-full-shuts-the-queue": defect(
        "D15",
        "a key that is full stops the others of its queue",
        "jobs/rows/limits/test_limits::test_what_is_full_blocks_nobody",
        (
            "migrations/sql/queue/functions/job_let_in.sql",
            "WHERE coalesce(in_queue.room, 1) > 0 AND coalesce(in_kind.room, 1) > 0 AND coalesce(in_lane.room, 1) > 0",
            "WHERE NOT EXISTS (SELECT FROM room WHERE least(places, tokens) = 0)",
        ),
    ),
    "a-second-request-makes-a-second-snap": defect(
        "D12 FE3",
        "the key of a request is not looked at",
        "api/product/test_snaps::test_the_same_key_makes_one_snap",
        ("snapapp/domain/marking.py", "            if holder != new.id:\n", "            if False:\n"),
    ),
}
