"""The product's tables as classes. Their checks, indexes, row policies and comments are in migrations/ alone; a test
compares the columns here with the migrated schema.

A row that has left its session is only read: a reference that was not loaded with the row raises."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from typing import Annotated, Any, ClassVar
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Computed,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Integer,
    LargeBinary,
    Text,
    TypeDecorator,
    Uuid,
    exists,
    false,
    func,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, foreign, mapped_column, relationship
from sqlalchemy.types import TypeEngine

from snapapp.domain.rules.subjects import Subject


class Kind(StrEnum):
    INSTANT = "INSTANT"
    INTERVAL = "INTERVAL"


class SnapStatus(StrEnum):
    """A snap's state as people see it; its job's state is finer."""

    PENDING = "PENDING"  # also while its job runs, or waits to be tried again
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # also if it was cancelled


class Ended(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class _As(TypeDecorator[Any]):
    """A column whose Python values have a type of their own: `read` makes the value from the stored one, `write` the
    stored one from the value."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True

    def __init__(self, impl: TypeEngine[Any], read: Callable[[Any], Any], write: Callable[[Any], Any]) -> None:
        super().__init__()
        self.impl, self.read, self.write = impl, read, write

    def process_bind_param(self, value: Any, _dialect: Dialect) -> Any:
        return None if value is None else self.write(value)

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        return None if value is None else self.read(value)


_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


class _Moment(TypeDecorator[datetime]):
    """A timestamp that may be `infinity`, which Python cannot represent: reads it as the year 9999."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def column_expression(self, column: Any) -> Any:
        return func.greatest(func.least(column, _LATEST), _EARLIEST, type_=self)


_Json = JSONB(none_as_null=True)
_HexBytes = _As(LargeBinary(), bytes.hex, bytes.fromhex)


@dataclass(frozen=True, slots=True)
class Field:
    key: str
    type: str  # string or number
    required: bool = False
    order: int = 0
    default: Any = None


def _field(stored: Mapping[str, Any], place: int) -> Field:
    """The field, whatever stands beside its key. Its place in the list is its order, if it names no other."""
    order = stored.get("order")
    return Field(
        key=stored["key"],
        type="number" if stored.get("type") == "number" else "string",
        required=stored.get("required") is True,
        order=order if isinstance(order, int) else place,
        default=stored.get("default"),
    )


class Base(DeclarativeBase):
    type_annotation_map: ClassVar = {
        str: Text,
        int: Integer,
        float: Double,
        bytes: LargeBinary,
        UUID: Uuid,
        datetime: DateTime(timezone=True),
        dict[str, Any]: _Json,
        list[dict[str, Any]]: _Json,
        list[str]: ARRAY(Text),
        Subject: _As(_Json, Subject.from_json, Subject.as_json),
    }


_Id = Annotated[int, mapped_column(BigInteger, Identity(), primary_key=True)]
_Uuid = Annotated[UUID, mapped_column(primary_key=True, server_default=func.gen_random_uuid())]
_Big = Annotated[int, mapped_column(BigInteger)]
_Made = Annotated[datetime, mapped_column(server_default=func.now())]
_Changed = Annotated[datetime, mapped_column(server_default=func.now(), onupdate=func.now())]
_Tenant = Annotated[str, mapped_column(ForeignKey("tenant.code"))]


def _of_snap(**rules: Any) -> ForeignKeyConstraint:
    """The reference of a row to a snap of the same tenant."""
    return ForeignKeyConstraint(["tenant", "snap_id"], ["snap.tenant", "snap.id"], **rules)


class Tenant(Base):
    __tablename__ = "tenant"

    code: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    token_hash: Mapped[bytes | None]
    status: Mapped[str] = mapped_column(server_default="ACTIVE")
    created_at: Mapped[_Made]
    token_changed_at: Mapped[_Made]

    @property
    def has_token(self) -> bool:
        return self.token_hash is not None


class OperatorRole(StrEnum):
    """What a person who signed in may do; `rights` decides by it."""

    OPERATOR = "operator"
    REVIEWER = "reviewer"
    ADMIN = "admin"


class Operator(Base):
    """A person who marks moments, known by e-mail. One with a role signs in by a personal link."""

    __tablename__ = "operator"

    id: Mapped[_Id]
    tenant: Mapped[_Tenant]
    email: Mapped[str]
    email_lower: Mapped[str] = mapped_column(Computed("lower(email)", persisted=True))
    nickname: Mapped[str]
    role: Mapped[OperatorRole | None] = mapped_column(_As(Text(), OperatorRole, str))
    link_hash: Mapped[bytes | None]
    link_changed_at: Mapped[datetime | None]
    created_at: Mapped[_Made]
    updated_at: Mapped[_Changed]


class Template(Base):
    """Which attributes a tenant wants of a subject."""

    __tablename__ = "template"

    id: Mapped[_Id]
    tenant: Mapped[_Tenant]
    slug: Mapped[str]
    name: Mapped[str]
    fields_as_stored: Mapped[list[dict[str, Any]]] = mapped_column("fields", server_default="[]")
    is_default: Mapped[bool] = mapped_column(server_default=false())
    is_active: Mapped[bool] = mapped_column(server_default=true())
    created_at: Mapped[_Made]
    updated_at: Mapped[_Changed]

    @property
    def fields(self) -> tuple[Field, ...]:
        """In their order, without what has no key: people write templates by hand, in SQL."""
        stored: list[Any] = self.fields_as_stored
        named = (one for one in stored if isinstance(one, dict) and isinstance(one.get("key"), str))
        return tuple(sorted(map(_field, named, count(1)), key=lambda field: field.order))


class Video(Base):
    __tablename__ = "video"
    __table_args__ = (ForeignKeyConstraint(["tenant", "created_by"], ["operator.tenant", "operator.id"]),)

    id: Mapped[_Uuid]
    tenant: Mapped[_Tenant]
    url: Mapped[str | None]
    url_hash: Mapped[bytes | None]
    storage_key: Mapped[str | None]
    file_name: Mapped[str | None]
    size_bytes: Mapped[_Big | None]
    sha256: Mapped[str | None] = mapped_column(_HexBytes)
    probe: Mapped[dict[str, Any] | None]
    created_by: Mapped[_Big | None]
    created_at: Mapped[_Made]

    @property
    def is_upload(self) -> bool:
        return self.storage_key is not None


class Share(Base):
    """A public link to a snap."""

    __tablename__ = "share"
    __table_args__ = (_of_snap(),)

    token: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    snap_id: Mapped[UUID]
    created_at: Mapped[_Made]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SnapJob(Base):
    """The job of a snap, as far as the snap's tenant may see it: a view of the queue's table."""

    __tablename__ = "snap_job"
    __table_args__ = ({"info": {"is_view": True}},)

    id: Mapped[_Big] = mapped_column(primary_key=True)
    snap_id: Mapped[UUID]
    status: Mapped[str]
    attempts: Mapped[int] = mapped_column("attempt_count")
    max_attempts: Mapped[int]
    next_run_at: Mapped[datetime] = mapped_column("next_retry_at", _Moment)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    last_error: Mapped[str | None]
    progress: Mapped[dict[str, Any] | None]
    cancel_requested_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class Snap(Base):
    """A marked moment and the evidence made of it."""

    __tablename__ = "snap"
    __table_args__ = (
        ForeignKeyConstraint(["tenant", "video_id"], ["video.tenant", "video.id"]),
        ForeignKeyConstraint(["tenant", "operator_id"], ["operator.tenant", "operator.id"]),
        ForeignKeyConstraint(["tenant", "template_id"], ["template.tenant", "template.id"]),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    tenant: Mapped[str] = mapped_column(ForeignKey("tenant.code"))
    video_id: Mapped[UUID] = mapped_column()
    operator_id: Mapped[_Big]
    template_id: Mapped[_Big]
    nickname: Mapped[str]
    nickname_lower: Mapped[str] = mapped_column(Computed("lower(nickname)", persisted=True))
    email: Mapped[str]
    kind: Mapped[Kind] = mapped_column(_As(Text(), Kind, str))
    is_draft: Mapped[bool] = mapped_column(server_default=false())
    filmed_at: Mapped[datetime | None]
    start_seconds: Mapped[float | None]
    start_frame: Mapped[_Big | None]
    resolved_start_seconds: Mapped[float | None]
    duration_seconds: Mapped[float]
    clip_seconds: Mapped[float]
    fps: Mapped[int]
    max_width: Mapped[int]
    format: Mapped[str]
    quality: Mapped[int | None]
    overlay: Mapped[dict[str, Any] | None]
    subject_id: Mapped[str]
    subject: Mapped[Subject]  # its id is filled in
    ended: Mapped[Ended | None] = mapped_column(_As(Text(), Ended, str))
    ended_error: Mapped[str | None] = mapped_column("error")
    cancelled_by: Mapped[str | None]
    probe: Mapped[dict[str, Any] | None]
    clip: Mapped[dict[str, Any] | None]
    frames: Mapped[list[dict[str, Any]] | None]
    frame_count: Mapped[int] = mapped_column(server_default="0")
    extras: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    media_prefix: Mapped[str | None]
    media_bytes: Mapped[_Big] = mapped_column(server_default="0")
    request_id: Mapped[str | None]
    created_at: Mapped[_Made]
    updated_at: Mapped[_Changed]
    processed_at: Mapped[datetime | None]
    hidden_at: Mapped[datetime | None]

    is_shared: Mapped[bool] = column_property(  # has, or ever had, a link
        exists().where(Share.tenant == tenant, Share.snap_id == id)  # noqa: A003 - the column above
    )
    video_url: Mapped[str | None] = column_property(
        select(Video.url).where(Video.tenant == tenant, Video.id == video_id).scalar_subquery()
    )
    job: Mapped[SnapJob | None] = relationship(
        primaryjoin=lambda: SnapJob.snap_id == foreign(Snap.id), viewonly=True, lazy="raise"
    )

    @property
    def status(self) -> SnapStatus:
        if self.ended is None:
            return SnapStatus.PENDING
        return SnapStatus.COMPLETED if self.ended is Ended.COMPLETED else SnapStatus.FAILED

    @property
    def version(self) -> str:
        """A hash of the subject and the filming date, so it changes with each correction that changes something."""
        filmed = self.filmed_at.astimezone(UTC).isoformat() if self.filmed_at else ""
        return hashlib.sha256(f"{self.subject.version} {filmed}".encode()).hexdigest()[:32]

    @property
    def error(self) -> str | None:
        """Why the snap failed; while its job waits to try again, the error of the last attempt."""
        return self.job.last_error if self.ended is None and self.job else self.ended_error


class SubjectAttribute(Base):
    """One attribute of a snap's subject, in the form in which searches look for it."""

    __tablename__ = "subject_attribute"
    __table_args__ = (_of_snap(ondelete="CASCADE"),)

    snap_id: Mapped[UUID] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    key: Mapped[str]
    key_lower: Mapped[str] = mapped_column(Computed("lower(key)", persisted=True))
    type: Mapped[str]
    text_value: Mapped[str | None]
    text_head: Mapped[str | None] = mapped_column(Computed("left(text_value, 200)", persisted=True))
    number_value: Mapped[float | None]


class SubjectWord(Base):
    """A word of a snap's subject, in lower case and without accents, for searches."""

    __tablename__ = "subject_word"
    __table_args__ = (_of_snap(ondelete="CASCADE"),)

    snap_id: Mapped[UUID] = mapped_column(primary_key=True)
    word: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]


class Correction(Base):
    """A correction of a snap, with the values before and after. Rows are never changed."""

    __tablename__ = "correction"
    __table_args__ = (
        _of_snap(ondelete="CASCADE"),
        ForeignKeyConstraint(["tenant", "operator_id"], ["operator.tenant", "operator.id"]),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    tenant: Mapped[str]
    snap_id: Mapped[UUID]
    by: Mapped[str]
    operator_id: Mapped[_Big | None]  # None: corrected with the tenant's token
    at: Mapped[_Made]
    before: Mapped[dict[str, Any]]
    after: Mapped[dict[str, Any]]


class IdempotencyKey(Base):
    """The Idempotency-Key of a request, and the snap that the request created."""

    __tablename__ = "idempotency"
    __table_args__ = (_of_snap(ondelete="CASCADE", deferrable=True, initially="DEFERRED"),)

    tenant: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[bytes]
    snap_id: Mapped[UUID]
    created_at: Mapped[_Made]


class Webhook(Base):
    """A URL that is called for the events of a tenant. Its secret signs what is sent."""

    __tablename__ = "webhook"

    id: Mapped[_Id]
    tenant: Mapped[_Tenant]
    url: Mapped[str]
    secret: Mapped[str]
    events: Mapped[list[str]]
    is_active: Mapped[bool] = mapped_column(server_default=true())
    paused_because: Mapped[str | None]
    created_at: Mapped[_Made]
    updated_at: Mapped[_Changed]
