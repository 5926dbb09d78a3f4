"""The queue's table as a mapped class, for applications that select and join it. Only the queue's own functions write
its rows: a write through the class is refused."""

from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, Engine, Integer, String, Text, TypeDecorator, UpdateBase, Uuid, event, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from snapapp.jobs.errors import ReadOnly

_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


class _Moment(TypeDecorator[datetime]):
    """A timestamp that may be `infinity`. Python has no such value, so it is read as the latest one that Python has."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def column_expression(self, column: Any) -> Any:
        return func.greatest(func.least(column, _LATEST), _EARLIEST, type_=self)


class _Base(DeclarativeBase):
    type_annotation_map: ClassVar = {
        str: Text,
        int: Integer,
        UUID: Uuid,
        datetime: DateTime(timezone=True),
        Any: JSONB(none_as_null=True),
    }


class ProcessingJob(_Base):
    """One job. `\\d+ snap_processing_job` in psql explains each column."""

    __tablename__ = "snap_processing_job"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    kind: Mapped[str]
    queue: Mapped[str]
    status: Mapped[str]
    priority: Mapped[int]
    payload: Mapped[Any]
    snap_id: Mapped[UUID | None]
    tenant: Mapped[str]
    attempt_count: Mapped[int]
    max_attempts: Mapped[int]
    next_retry_at: Mapped[datetime] = mapped_column(_Moment)
    last_error: Mapped[str | None]
    errors: Mapped[Any]
    claimed_by: Mapped[str | None]
    locked_at: Mapped[datetime | None]
    lock_expires_at: Mapped[datetime | None]
    lease_seq: Mapped[int] = mapped_column(BigInteger)
    interruptions: Mapped[int]
    timeout_ms: Mapped[int | None]
    cancel_requested_at: Mapped[datetime | None]
    progress: Mapped[Any] = mapped_column(nullable=True)
    result: Mapped[Any] = mapped_column(nullable=True)
    unique_key: Mapped[str | None]
    unique_scope: Mapped[str | None]
    concurrency_key: Mapped[str | None]
    replay_of: Mapped[int | None] = mapped_column(BigInteger)
    request_id: Mapped[str | None]
    traceparent: Mapped[str | None] = mapped_column(String(55))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


@event.listens_for(Engine, "before_execute")
def _refuse_writes(_connection: Any, statement: Any, *_given: Any) -> None:
    """Refuses the flush of a session and `update(ProcessingJob)` in a session or on a connection."""
    if isinstance(statement, UpdateBase) and statement.entity_description["table"] is ProcessingJob.__table__:
        raise ReadOnly(
            "ProcessingJob is for reading: jobs are added by enqueue() and changed by cancel_job, retry_job, "
            "replay_job, pause_queue and the other functions of the queue"
        )
