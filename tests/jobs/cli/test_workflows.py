"""Workflows as people see them in a shell."""

from snapapp.jobs.model import Buried
from tests.commands import Call
from tests.factory import OOPS, Db, bury, complete, running_job


def test_a_person_adds_a_child_and_sees_how_far_its_parents_are(call: Call, db: Db) -> None:
    """M63, R43."""
    assert call("jobs", "workflows").out == "No job waits for others.\n"
    one, two = running_job(db), running_job(db)
    child = call("jobs", "enqueue", "test", "--after", one.id, two.id).out.split()[1]
    anyway = call("jobs", "enqueue", "test", "--after", two.id, "--on-parent-failure", "run").out.split()[1]
    assert "after 2 jobs" in call("jobs", "list").out
    complete(db, one)
    assert "It waits for 1 of its 2 parents" in call("jobs", "show", child).out
    bury(db, two, Buried(OOPS), 0.1)
    lines = [line.split()[:7] for line in call("jobs", "workflows").out.splitlines()[1:]]
    assert lines == [
        [str(anyway), "WAITING_CALLBACK", "test", "1", "0", "1", "0"],
        [str(child), "FAILED", "test", "2", "1", "1", "0"],
    ]
    told = call("jobs", "workflows", "--json").json["workflows"]
    assert told[1]["last_error"] == f"its parent, job {two.id}, is FAILED"
    assert call("jobs", "enqueue", "test", "--after", 999).code == 1
