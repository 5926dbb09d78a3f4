"""What a use case begins with: a transaction on behalf of a tenant, and what it may ask of the queue in it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from snapapp.domain.tables import Tenant
from snapapp.postgres import database


@dataclass(frozen=True, slots=True)
class TenantTransaction:
    """The product's rows are read in the tenant's role; the queue is used in the owner's, because the tenant's role has
    no right on it."""

    db: Session
    tenant: Tenant

    @property
    def code(self) -> str:
        return self.tenant.code

    def as_tenant(self) -> AbstractContextManager[Session]:
        return database.scope(self.db, self.code)

    def stay_tenant(self) -> None:
        """The same until the transaction ends."""
        database.enter(self.db, self.code)


Begin = Callable[[], AbstractContextManager[TenantTransaction]]  # committed when it is left, rolled back by an error


@dataclass(frozen=True, slots=True)
class Queue:
    """Functions of the queue, each in the transaction that it is given. The domain does not know whose they are."""

    enqueue: Callable[..., int | None]
    lock: Callable[[Session, str, UUID], int | None]  # the job of a tenant's snap, by its id
    cancel: Callable[[Session, int], object]  # an error where the job has ended
    give_up: Callable[[Session, int], object]  # the same, without an error
    retry: Callable[[Session, int], object]
