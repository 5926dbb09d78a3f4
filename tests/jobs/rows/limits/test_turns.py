"""Fair queues: whose turn it is."""

from snapapp.jobs.registry import Registry
from tests.factory import Db, make_job, make_jobs
from tests.jobs.rows.limits.limiting import Turns, both_servers, turn
from tests.jobs.working import until, working


def make_fair(db: Db, name: str = "default") -> None:
    db.execute("INSERT INTO job_queue (name, fair) VALUES (%s, true)", [name])


# --- whose turn it is -------------------------------------------------------------------------------------------


@both_servers
def test_tenants_of_a_fair_queue_take_turns_in_a_batch_and_from_one_to_the_next(db: Db) -> None:
    """FE1."""
    make_fair(db)
    for tenant, count in (("a", 20), ("z", 3)):
        make_jobs(db, count, tenant=tenant)
    served = Turns()
    assert [job.tenant for job in turn(db, 6, served=served).jobs] == ["a", "z"] * 3
    make_jobs(db, 3, tenant="m")
    order = [job.tenant for _ in range(6) for job in turn(db, 1, served=served).jobs]
    assert order == ["a", "m"] * 3


@both_servers
def test_the_turns_of_a_fair_queue_go_on_whatever_other_queues_do_meanwhile(db: Db) -> None:
    """FE1: one rotation for all queues began again with each webhook, and who is late in the alphabet got nothing."""
    make_fair(db, "media")
    for tenant in "abc":
        make_jobs(db, 4, queue="media", tenant=tenant)
    make_jobs(db, 12, kind="webhook")
    served, order = Turns(), list[str]()
    for _ in range(6):
        for kinds in (("test",), ("webhook",)):
            seen = turn(db, 1, served=served, kinds=kinds)
            order += [each.tenant for each in seen.jobs if each.kind == "test"]
    assert order == ["a", "b", "c"] * 2


@both_servers
def test_in_claims_for_several_queues_at_once_each_keeps_its_own_turn(db: Db) -> None:
    for name in ("one", "two"):
        make_fair(db, name)
        for tenant in "abcd":
            make_jobs(db, 3, queue=name, tenant=tenant)
    served, order = Turns(), {"one": "", "two": ""}
    for _ in range(24):
        for each in turn(db, 1, served=served).jobs:
            order[each.queue] += each.tenant
    assert order == {"one": "abcd" * 3, "two": "abcd" * 3}


@both_servers
def test_a_batch_is_filled_by_who_has_the_most_where_the_others_have_little(db: Db) -> None:
    make_fair(db)
    make_jobs(db, 200, tenant="a")
    for number in range(5):
        make_job(db, tenant=f"b{number}")
    tenants = [job.tenant for job in turn(db, 60).jobs]
    assert sorted(tenants[:6]) == ["a", "b0", "b1", "b2", "b3", "b4"]
    assert len(tenants) >= 40


@both_servers
def test_priority_comes_before_turns(db: Db) -> None:
    make_fair(db)
    make_jobs(db, 5, tenant="a", priority=1)
    make_jobs(db, 5, tenant="b")
    assert [job.tenant for job in turn(db, 7).jobs] == ["a"] * 5 + ["b"] * 2


def test_a_small_tenant_is_served_beside_a_large_one(url: str, db: Db) -> None:
    """FE1: 1,000 jobs of one, 10 of another."""
    make_fair(db)
    db.execute("SELECT enqueue_job('work', tenant => 'a') FROM generate_series(1, 1000)")
    db.execute("SELECT enqueue_job('work', tenant => 'b') FROM generate_series(1, 10)")
    registry, order = Registry(), list[str]()
    registry.processor("work")(lambda job: order.append(job.tenant))
    with working(url, registry, concurrency=1) as (worker, _):
        until(lambda: worker.counts.completed == 1010, within=40)
    assert len(order) == 1010
    assert order[:40].count("b") == 10
