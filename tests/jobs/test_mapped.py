"""ProcessingJob: the queue's table for applications that select and join it, and write nothing."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import delete, insert, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from snapapp.jobs import ProcessingJob, enqueue
from snapapp.jobs.errors import ReadOnly
from tests.factory import Db, scalar


class Mine(DeclarativeBase):
    """An application's own classes."""


class Letter(Mine):
    __tablename__ = "letter"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int]
    to: Mapped[str]


@pytest.fixture
def job_id(engine: sqlalchemy.Engine) -> int:
    with Session(engine) as session, session.begin():
        Mine.metadata.create_all(session.connection())
        found = enqueue(session, "mail.send", {"to": "ana"}, tenant="north")
        assert found
        session.add(Letter(id=1, job_id=found, to="ana"))
    return found


def test_an_application_joins_its_rows_with_their_jobs(engine: sqlalchemy.Engine, job_id: int) -> None:
    waiting = select(Letter, ProcessingJob).join(ProcessingJob, ProcessingJob.id == Letter.job_id)
    with Session(engine) as session:
        [(letter, job)] = session.execute(waiting.where(ProcessingJob.status == "PENDING"))
        assert (letter.to, job.kind, job.payload, job.tenant) == ("ana", "mail.send", {"to": "ana"}, "north")
        assert (job.attempt_count, job.result, job.finished_at) == (0, None, None)
        assert job.next_retry_at <= datetime.now(UTC)


def test_a_job_that_is_due_at_the_end_of_time_can_be_read(engine: sqlalchemy.Engine, db: Db, job_id: int) -> None:
    db.execute("UPDATE snap_processing_job SET next_retry_at = 'infinity'")
    with Session(engine) as session:
        assert session.scalars(select(ProcessingJob)).one().next_retry_at.year == 9999


def add(session: Session) -> None:
    session.add(ProcessingJob(kind="x"))
    session.flush()


def change(session: Session) -> None:
    session.scalars(select(ProcessingJob)).one().status = "COMPLETED"
    session.flush()


def remove(session: Session) -> None:
    session.delete(session.scalars(select(ProcessingJob)).one())
    session.flush()


WRITES: dict[str, Callable[[Session], Any]] = {
    "add": add,
    "change": change,
    "remove": remove,
    "insert": lambda session: session.execute(insert(ProcessingJob).values(kind="x")),
    "insert many": lambda session: session.execute(insert(ProcessingJob), [{"kind": "x"}, {"kind": "y"}]),
    "upsert": lambda session: session.execute(
        postgresql.insert(ProcessingJob).values(kind="x").on_conflict_do_nothing()
    ),
    "update": lambda session: session.execute(update(ProcessingJob).values(status="COMPLETED")),
    "delete": lambda session: session.execute(delete(ProcessingJob)),
    "on a connection": lambda session: session.connection().execute(update(ProcessingJob).values(priority=1)),
    "through the table": lambda session: session.execute(delete(ProcessingJob.__table__)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused_and_says_what_to_use(engine: sqlalchemy.Engine, db: Db, job_id: int, name: str) -> None:
    before = scalar(db, "SELECT snap_processing_job::text FROM snap_processing_job")
    with Session(engine) as session, pytest.raises(ReadOnly, match=r"ProcessingJob is for reading: .*enqueue\(\)"):
        WRITES[name](session)
    assert scalar(db, "SELECT snap_processing_job::text FROM snap_processing_job") == before


def test_what_is_not_the_queues_is_written_beside_it(engine: sqlalchemy.Engine, job_id: int) -> None:
    with Session(engine) as session, session.begin():
        session.execute(update(Letter).values(to="bob"))
        locked = select(Letter.to).join(ProcessingJob, ProcessingJob.id == Letter.job_id).with_for_update()
        assert session.scalars(locked).all() == ["bob"]


@pytest.mark.both_servers_at_length
def test_its_columns_are_those_of_the_table(engine: sqlalchemy.Engine) -> None:
    """Those that are public: of the others a class tells nobody."""

    def is_compared(_thing: Any, name: str | None, kind: str, is_reflected: bool, other: object) -> bool:
        if kind == "table":
            return name == ProcessingJob.__tablename__
        return kind == "column" and not (is_reflected and other is None)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": is_compared})
        found = compare_metadata(context, ProcessingJob.metadata)
        single = [one for each in found for one in (each if isinstance(each, list) else [each])]
    assert [one for one in single if "comment" not in one[0]] == []


def test_a_worker_does_not_map_it() -> None:
    """What it costs is paid by who asks for it."""
    script = "import sys, snapapp.jobs.worker.worker as w; sys.exit('snapapp.jobs.mapped' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
