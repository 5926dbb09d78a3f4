"""Children on a cluster: what holds for those of this machine holds there, and what the cluster adds."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'snapapp[compute]'")

from distributed import Client
from tenacity import wait_fixed, wait_none

from snapapp.jobs.compute import cluster as cluster_module
from snapapp.jobs.compute import node
from snapapp.jobs.compute.cluster import Place, connect_client
from snapapp.jobs.compute.remote import Remote
from snapapp.jobs.context import Within
from snapapp.jobs.events import WORKER_ERROR
from snapapp.jobs.executors.messages import fields
from snapapp.jobs.executors.reaper import Guard
from snapapp.jobs.model import Interrupted, Job
from snapapp.jobs.os.processes import started
from snapapp.jobs.registry import Processor, Registry
from snapapp.jobs.rows import lifecycle
from tests import ROOT
from tests.factory import Db, ago, make_job, move, row, scalar
from tests.jobs.compute.clusters import NODE, Cluster
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import crashing
from tests.jobs.working import PATIENCE, Heard, quick_settings, until, until_status, working
from tests.labs.executors import kinds
from tests.running import free_port

at_length = pytest.mark.at_length  # a node that is killed, and bad jobs on one that lives, in every run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start_scheduler()
        cluster.start_node("first")
        cluster.until_nodes(1)
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """To be broken."""
    with Cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_node("first")
        cluster.until_nodes(1)
        yield cluster


_SAID = "SELECT message FROM job_log WHERE job_id = %s ORDER BY id DESC LIMIT 1"


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def brooding(db: Db, **options: object) -> tuple[int, int, int]:
    """A job that runs, its child and its grandchild."""
    job_id = put(db, "process.brooding", **options)
    until(lambda: db.execute(_SAID, [job_id]).fetchone())
    child, grandchild = scalar(db, _SAID, job_id).split()
    return job_id, int(child), int(grandchild)


def last_child(db: Db, job_id: int) -> int:
    return int(scalar(db, _SAID, job_id).split()[0])


def test_a_job_runs_in_a_child_of_a_node_that_serves_the_next_one_too(url: str, db: Db, cluster: Cluster) -> None:
    with working(url, kinds.registry, compute=cluster.typed):
        first, second = (until_status(db, put(db, "process.good"), "COMPLETED").result for _ in range(2))
        assert parent_of(first) == cluster.nodes["first"].pid
    assert first == second


def test_what_a_job_says_there_is_heard_here(url: str, db: Db, cluster: Cluster) -> None:
    with working(url, crashing.registry, compute=cluster.typed):
        done = until_status(db, put(db, "child.echo", payload={"to": "Ana"}), "COMPLETED")
        assert done.result["payload"] == {"to": "Ana"}
        until(lambda: row(db, done.id).progress == {"percent": 50, "note": "half"})
        until(lambda: db.execute(_SAID, [done.id]).fetchone() == ("from the child",))


@pytest.mark.parametrize(
    "kind",
    [
        "process.segfault",
        "process.pill",
        *(pytest.param(f"process.{kind}", marks=at_length) for kind in ("exit", "python", "gulp", "liar")),
    ],
)
def test_a_bad_job_ends_there_with_the_reason_that_it_has_here(url: str, db: Db, cluster: Cluster, kind: str) -> None:
    with working(url, kinds.registry, compute=cluster.typed):
        dead = until_status(db, put(db, kind, max_attempts=1), "FAILED")
        until_status(db, put(db, "process.good"), "COMPLETED")
    assert kinds.BAD[kind] in dead.last_error


@pytest.mark.at_length  # worker/test_memory has it of a child of this machine in every run
def test_a_job_that_ran_short_of_memory_comes_again_with_twice_as_much(url: str, db: Db, cluster: Cluster) -> None:
    with working(url, kinds.registry, compute=cluster.typed):
        job_id = put(db, "process.pill", max_attempts=2)
        until_status(db, job_id, "FAILED")
    errors = [each["error"] for each in row(db, job_id).errors]
    assert [f"its limit is {limit} MB" in error for limit, error in zip((120, 240), errors, strict=True)] == [True] * 2


def test_a_cancel_kills_what_runs_on_the_node(
    url: str, db: Db, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapapp.jobs.compute.remote._STOPS_IN", 600.0)  # the node says when it is done
    with working(url, kinds.registry, compute=cluster.typed):
        job_id, child, grandchild = brooding(db)
        lifecycle.cancel(db, job_id)
        until_status(db, job_id, "CANCELLED")
        until(lambda: started(child) is None and started(grandchild) is None)


def test_a_worker_that_stops_kills_what_runs_on_the_node_and_hands_it_back(url: str, db: Db, cluster: Cluster) -> None:
    with working(url, kinds.registry, compute=cluster.typed):
        job_id, child, grandchild = brooding(db)
    until(lambda: started(child) is None and started(grandchild) is None)
    back = row(db, job_id)
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)


def test_a_node_that_is_killed_ends_the_attempt_as_a_lost_child_does(url: str, db: Db, cluster: Cluster) -> None:
    with working(url, kinds.registry, compute=cluster.typed):
        job_id, child, grandchild = brooding(db, max_attempts=1)
        cluster.nodes["first"].kill()
        cluster.nodes["first"].wait()
        dead = until_status(db, job_id, "FAILED")
        until(lambda: started(child) is None and started(grandchild) is None)
        cluster.start_node("first")  # for the tests that come after this one, too
        until_status(db, put(db, "process.good"), "COMPLETED")
    assert "ChildDied: the node tcp://127.0.0.1:" in dead.last_error
    assert "was lost, and with it the child process" in dead.last_error


@at_length
def test_a_node_that_is_told_to_end_hands_back_what_it_runs(url: str, db: Db, own_cluster: Cluster) -> None:
    with working(url, kinds.registry, compute=own_cluster.typed):
        job_id, child, _ = brooding(db)
        own_cluster.nodes["first"].terminate()
        until(lambda: row(db, job_id).interruptions == 1)
        until(lambda: started(child) is None)
        own_cluster.start_node("second")
        until(lambda: parent_of(last_child(db, job_id)) == own_cluster.nodes["second"].pid)
        assert row(db, job_id).attempt_count == 1
    assert row(db, job_id).errors == []


@at_length
def test_jobs_wait_uncharged_while_the_scheduler_is_away(url: str, db: Db, own_cluster: Cluster) -> None:
    with working(url, kinds.registry, compute=own_cluster.typed) as (_, heard):
        job_id, child, _ = brooding(db)
        assert own_cluster.scheduler
        own_cluster.scheduler.kill()
        own_cluster.scheduler.wait()
        until(lambda: row(db, job_id).status == "PENDING" and started(child) is None)
        lifecycle.cancel(db, job_id)
        until(lambda: said_to_be_away(heard))
        waits = put(db, "process.good")
        own_cluster.nodes["first"].wait()  # it ends by itself, and is started anew by whoever keeps services running
        assert (row(db, waits).status, row(db, waits).attempt_count) == ("PENDING", 0)
        own_cluster.start_scheduler()
        own_cluster.start_node("second")
        assert until_status(db, waits, "COMPLETED").attempt_count == 1


@at_length
def test_a_scheduler_that_is_started_anew_at_once_is_told_who_listens(
    url: str, db: Db, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client comes back to it before anybody has seen that it was away."""
    monkeypatch.setattr("snapapp.jobs.compute.remote._PLACE_IN", 600.0)
    monkeypatch.setattr("snapapp.jobs.compute.cluster._ANSWERS_IN", 60.0)
    monkeypatch.setattr("snapapp.jobs.compute.cluster._LOOKS_EVERY", 0.01)
    with working(url, kinds.registry, compute=own_cluster.typed):
        until_status(db, put(db, "process.good"), "COMPLETED")
        monkeypatch.setattr("snapapp.jobs.compute.cluster._LOOKS_EVERY", 600.0)
        sleep(0.1)  # the last look of those that come so often
        assert own_cluster.scheduler
        own_cluster.scheduler.kill()
        own_cluster.scheduler.wait()
        own_cluster.start_scheduler()
        own_cluster.start_node("second")
        own_cluster.until_nodes(1)
        until_status(db, put(db, "process.good"), "COMPLETED")


def said_to_be_away(heard: Heard) -> bool:
    return any(event.facts["doing"] == "reach the cluster" for event in heard.all(WORKER_ERROR))


@at_length
def test_a_worker_starts_without_its_cluster_and_does_all_else(url: str, db: Db) -> None:
    with working(url, kinds.registry, compute=f"dask://127.0.0.1:{free_port()}") as (_, heard):
        until_status(db, put(db, "thread.good"), "COMPLETED")
        until(lambda: said_to_be_away(heard))
        waits = put(db, "process.good")
        assert row(db, waits).status == "PENDING"
        said = [line for (line,) in db.execute("SELECT explain_job(%s)", [waits])]
        assert any("with 0 of their 1 slots for it busy" in line for line in said)
        assert any("says: the cluster at dask://127.0.0.1:" in line for line in said)


def test_a_node_of_an_older_release_overlooks_what_it_does_not_know(
    url: str, db: Db, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapapp.jobs.compute.remote.fields", lambda job: fields(job) | {"of_next_year": True})
    with working(url, kinds.registry, compute=cluster.typed):
        until_status(db, put(db, "process.good"), "COMPLETED")


def test_a_job_that_a_node_cannot_read_goes_back_at_once(
    url: str, db: Db, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = iter([{"kind": "process.good"}])
    monkeypatch.setattr("snapapp.jobs.compute.remote.fields", lambda job: next(unread, None) or fields(job))
    with working(url, kinds.registry, compute=cluster.typed):
        done = until_status(db, put(db, "process.good", max_attempts=1), "COMPLETED")
        assert (done.interruptions, done.attempt_count) == (1, 1)


@at_length
def test_an_order_that_comes_when_the_node_waits_no_longer_goes_back(
    url: str, db: Db, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, reserve = iter([node._TAKEN_IN + 1]), Remote.reserve

    def dawdling(remote: Remote, job: Job, processor: Processor) -> None:
        reserve(remote, job, processor)
        sleep(next(late, 0))

    monkeypatch.setattr(Remote, "reserve", dawdling)
    with working(url, kinds.registry, compute=cluster.typed):
        done = until_status(db, put(db, "process.good", max_attempts=1), "COMPLETED")
        assert (done.interruptions, done.attempt_count) == (1, 1)


def test_a_place_that_was_let_go_before_it_was_reached_asks_for_nothing(cluster: Cluster) -> None:
    with connect_client(cluster.typed) as client:
        [address] = client.scheduler_info()["workers"]
        place = Place(client)
        place.let_go()
        client.sync(place.talk, address)
        assert place.next(0) is None


def test_a_worker_does_not_wait_for_a_silent_scheduler_when_it_stops() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = cluster_module.Cluster(f"dask://127.0.0.1:{silent.getsockname()[1]}", lambda _doing, _error: None)
        client.start()
        caller, _ = silent.accept()
        with caller:
            began = monotonic()
            client.stop()
            assert monotonic() - began < 3  # it gives up on a scheduler after 5


def test_a_place_that_cannot_be_asked_for_is_forgotten(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("the client is closing")

    asking = cluster_module.Cluster(cluster.typed, lambda _doing, _error: None)
    asking.start()
    try:
        until(lambda: asking.sizes)
        monkeypatch.setattr(Client, "submit", refuse)
        with pytest.raises(RuntimeError, match="closing"):
            asking.place((), 100, 1)
        assert asking._places == {}
    finally:
        asking.stop()


def a_job() -> Job:
    return Job(1, "process.good", "default", "", 0, b"{}", None, 1, 1, 1, None, None, parents_json=b"[]")


def test_a_stop_that_comes_just_before_the_job_ends_it() -> None:
    order = {"path": "nowhere:nothing", "context": None, "limit_mb": 0}
    with closing(asyncio.new_event_loop()) as loop:
        held = node.Held(loop)
        child = node.ChildHere((), quick_settings("postgresql:///none"), Guard(), Within())
        held.end()
        told = {"job": fields(a_job()), "order": order, "within": 60}
        said = node.Node._run(None, held, child, told)  # type: ignore[arg-type]
    assert said["failure"]["error"].startswith("JobInterrupted: ")


def test_chatter_is_dropped_when_too_much_waits_and_a_last_word_never() -> None:
    async def flooded() -> list[node.Message]:
        held = node.Held(asyncio.get_running_loop())
        for _ in range(5000):
            held.say({"log": ["INFO", "again"]})
        held.say({"answer": {}})
        await asyncio.sleep(0)
        return [held.words.get_nowait() for _ in range(held.words.qsize())]

    said = asyncio.run(flooded())
    assert len(said) == 1 + node.MOST_WAITING
    assert said[-1] == {"answer": {}}


def test_a_slot_that_does_not_read_is_sent_no_more_chatter(cluster: Cluster) -> None:
    with connect_client(cluster.typed) as client:
        place = Place(client)
        for _ in range(5000):
            place.hear({"progress": "{}"})
        place.hear({"lost": "the worker is stopping"})
        said = [*iter(lambda: place.next(0), None)]
    assert len(said) == 1 + node.MOST_WAITING
    assert said[-1] == {"lost": "the worker is stopping"}


def test_a_job_without_a_place_goes_back() -> None:
    """Its lease was in doubt when there was to be one, and is not any more."""
    settings = quick_settings("postgresql:///none")
    cluster = cluster_module.Cluster(f"dask://127.0.0.1:{free_port()}", lambda _doing, _error: None)
    its = a_job()
    outcome = Remote(cluster, (), settings, Within()).run(its, kinds.registry.get("process.good"), wait_none())
    assert outcome == Interrupted()


@pytest.mark.at_length  # what exceeds every node is told in every run
def test_what_no_node_has_room_for_now_comes_again_later_and_uncharged(
    url: str, db: Db, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapapp.jobs.compute.remote._PLACE_IN", 2.0)
    with (
        working(url, kinds.registry, compute=cluster.typed) as (_, heard),
        working(url, kinds.registry, compute=cluster.typed) as (_, other),
    ):
        brooding(db)
        waits = put(db, "process.good")
        said = "no node has taken process.good job"
        until(lambda: any(said in e.facts["error"] for e in [*heard.all(WORKER_ERROR), *other.all(WORKER_ERROR)]))
        until(lambda: row(db, waits).status == "PENDING")
        back = row(db, waits)
        assert (back.attempt_count, back.interruptions) == (0, 0)
        assert scalar(db, "SELECT next_retry_at > now() + '20 s' FROM snap_processing_job WHERE id = %s", waits)


def test_what_exceeds_every_node_fails_in_the_end_and_says_so(
    url: str, db: Db, cluster: Cluster, registry: Registry
) -> None:
    registry.processor("huge", executor="process", memory_mb=1_000_000)(kinds.compute)
    with working(url, registry, compute=cluster.typed):
        dead = until_status(db, put(db, "huge", max_attempts=1), "FAILED")
    assert "NoPlace: huge job" in dead.last_error
    assert "wants 1000000 MB and cores: 1, and no node of the cluster has been as large yet" in dead.last_error
    assert "they have 3000 MB and cores: 1" in dead.last_error


@at_length
def test_what_exceeds_every_node_so_far_waits_for_a_larger_one(
    url: str, db: Db, own_cluster: Cluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.processor("larger", executor="process", memory_mb=4000)(kinds.compute)
    with working(url, registry, compute=own_cluster.typed):
        waits = make_job(db, kind="larger", losses=2, gate="alone", max_attempts=100)
        until(lambda: row(db, waits).status == "RETRY_WAIT")
        now = row(db, waits)
        assert "no node of the cluster has been as large yet" in now.last_error
        assert (now.losses, now.gate) == (2, "alone")  # it has shown nothing, so it is as suspect as before
        assert scalar(db, "SELECT next_retry_at > now() + '4 min' FROM snap_processing_job WHERE id = %s", waits)
        monkeypatch.setattr("snapapp.jobs.compute.remote._LARGER_IN", wait_fixed(1))
        own_cluster.start_node("larger", memory_mb=5000)
        move(db, waits, next_retry_at=ago(seconds=1))
        until_status(db, waits, "COMPLETED")


@at_length
def test_memory_is_not_raised_above_the_largest_node(url: str, db: Db, own_cluster: Cluster) -> None:
    own_cluster.start_node("second", memory_mb=150)
    own_cluster.nodes["first"].terminate()
    own_cluster.nodes["first"].wait()
    own_cluster.until_nodes(1)
    with working(url, kinds.registry, compute=own_cluster.typed):
        job_id = put(db, "process.pill", max_attempts=2)
        until_status(db, job_id, "FAILED")
    assert row(db, job_id).memory_mb == 150


@at_length
def test_a_node_without_our_preload_is_never_asked(url: str, db: Db, cluster: Cluster) -> None:
    """Our places ask for resources that only ours declare."""
    cluster.start_stranger()
    cluster.until_nodes(2)
    with working(url, kinds.registry, children=2, compute=cluster.typed):
        pids = {until_status(db, put(db, "process.good"), "COMPLETED").result for _ in range(4)}
        assert {parent_of(pid) for pid in pids} == {cluster.nodes["first"].pid}


@at_length
def test_a_node_of_a_name_that_is_taken_says_so(cluster: Cluster) -> None:
    twin = [sys.executable, *NODE, cluster.typed, "--name", "first"]
    answer = subprocess.run(twin, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False)
    assert answer.returncode == 1
    [said] = [line for line in answer.stderr.splitlines() if line.startswith("snapapp: ")]
    assert said.startswith("snapapp: The node cannot start: ")
    assert "name taken, first" in said


@at_length
def test_a_node_that_finds_no_scheduler_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start_node("early")
        until(lambda: "Waiting to connect to" in cluster.said("early"))
        cluster.nodes["early"].terminate()
        assert cluster.nodes["early"].wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize(
    "typed", ["dask://", "dask://host", "dask://host:0", "tcp://h:1", "dask://h:1/x", "dask://a b:1", "dask://h:99999"]
)
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r"compute must be dask://host:port or dask\+tls://host:port, not "):
        quick_settings("postgresql:///none", compute=typed)
