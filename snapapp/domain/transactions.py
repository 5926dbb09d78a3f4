"""What a use case works with: a transaction on behalf of a tenant, and the queue's functions that it may call in it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from snapapp.domain.tables import Operator, SnapJob, Tenant
from snapapp.postgres import database


@dataclass(frozen=True, slots=True)
class TenantTransaction:
    """One transaction with two database roles: the product's rows are used in the tenant's role, the queue in the
    owner's, because the tenant's role has no rights on the queue."""

    db: Session
    tenant: Tenant
    operator: Operator | None = None  # who signed in; None: the tenant's own token

    @property
    def code(self) -> str:
        return self.tenant.code

    @property
    def name(self) -> str:
        """Who acts: the person who signed in, or the tenant."""
        return self.operator.nickname if self.operator else self.tenant.name

    def as_tenant(self) -> AbstractContextManager[Session]:
        return database.scope(self.db, self.code)

    def stay_tenant(self) -> None:
        """Keeps the tenant's role until the transaction ends."""
        database.enter(self.db, self.code)


Begin = Callable[[], AbstractContextManager[TenantTransaction]]  # its `with` commits, or rolls back after an error


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue's functions, each of which works in the transaction that it is given. They are handed in, so that the
    domain imports nothing of the queue."""

    enqueue: Callable[..., int | None]
    enqueued: Callable[[Session, int], SnapJob]  # the job that `enqueue` has just added
    lock: Callable[[Session, str, UUID], int | None]  # locks the job of a tenant's snap; returns its id
    cancel: Callable[[Session, int], object]  # raises where the job has ended
    give_up: Callable[[Session, int], object]  # cancels the job, or does nothing where it has ended
    retry: Callable[[Session, int], object]
    order_anew: Callable[[Session, int, dict[str, Any]], object]  # gives the job another payload
