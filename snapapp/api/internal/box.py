"""/internal/box: the state of the machine, which needs no database, and of the PostgreSQL server."""

import asyncio

from pydantic import Field

from snapapp.api.http.deps import MonolithDep, Reading
from snapapp.api.http.routers import InternalRouter
from snapapp.api.http.schema import Shown
from snapapp.api.internal import machine
from snapapp.api.internal.machine import Machine
from snapapp.jobs.doctor import numbers

router = InternalRouter(prefix="/internal/box", tags=["observability"])


class TableLine(Shown):
    """A table of the queue, as the server's statistics have it."""

    name: str = Field(examples=["snap_processing_job"])
    live: int = Field(description="Rows.")
    dead: int = Field(description="Rows that were changed or deleted, and not swept yet.")
    swept_at: float = Field(description="The number of dead rows at which the next autovacuum comes.")
    bytes: int = Field(description="With its indexes.")
    vacuumed: float | None = Field(description="Seconds ago; null: never.")
    analyzed: float | None = Field(description="Likewise.")


class SessionLine(Shown):
    """Connections with the same application name and state."""

    application: str = Field(examples=["snapapp web"])
    state: str = Field(examples=["idle"])
    sessions: int
    oldest_transaction: float | None = Field(description="Seconds; null: none of them is in one.")


class HolderLine(Shown):
    """A session that keeps vacuum from removing rows that died after it began."""

    who: str = Field(examples=["pid 4711 (psql)"])
    transactions: int = Field(description="How many transactions have begun since.")
    seconds: float | None = Field(description="For how long; null: unknown.")
    doing: str


class ServerPage(Shown):
    """The PostgreSQL server, and our tables and connections in it."""

    version: str = Field(examples=["18.1"])
    up_for: float = Field(description="Seconds.")
    database_bytes: int
    connections: int
    max_connections: int
    disk_free_bytes: int | None = Field(description="Null: the server's disk cannot be seen from here.")
    tables: list[TableLine]
    sessions: list[SessionLine]
    horizon: list[HolderLine] = Field(
        description="The oldest first. A holder that is gone after a moment does no harm."
    )


@router.get("")
async def show_machine(monolith: MonolithDep) -> Machine:
    """Memory, processor, disks and processes. It is answered while the database is away."""
    # in a thread, because a disk may hang; not as a plain route, because its threads may all wait for the database
    return await asyncio.to_thread(machine.look, monolith.settings)


@router.get("/server")
def show_server(db: Reading) -> ServerPage:
    """The size of the database, its connections, the dead rows that wait for vacuum, and the sessions that hold vacuum
    back."""
    return ServerPage.model_validate(numbers.look(db))
