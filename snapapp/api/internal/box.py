"""/internal/box: the state of the machine, which needs no database, and of the PostgreSQL server."""

import asyncio
from dataclasses import asdict

from fastapi import APIRouter
from pydantic import Field

from snapapp.api.http.deps import House, Reading
from snapapp.api.http.schema import Shown
from snapapp.jobs.doctor import numbers
from snapapp.process import box

router = APIRouter(prefix="/internal/box", tags=["observability"])


class MemoryLine(Shown):
    total_mb: int = Field(description="Of the machine.")
    free_mb: int = Field(description="The least that the machine and the control groups around this process leave.")
    swapped_mb: int = Field(description="What the machine has moved out to disk.")


class DiskLine(Shown):
    """A disk that holds some of our folders."""

    folder: str
    what: str = Field(description="`files`, `data` or `scratch`.", examples=["files"])
    total_mb: int | None = Field(description="Null: the disk did not answer within a second.")
    free_mb: int | None
    floor_mb: int | None = Field(description="With less free, new heavy work is refused; null: it has no floor.")


class ProcessLine(Shown):
    """This process, or one that it started."""

    pid: int
    name: str = Field(examples=["snapapp"])
    is_child: bool
    memory_mb: int = Field(description="Resident.")


class Machine(Shown):
    """The machine that this process runs on."""

    host: str
    cores: int
    load: list[float] | None = Field(description="Over 1, 5 and 15 minutes.", examples=[[0.4, 0.3, 0.2]])
    memory: MemoryLine | None = Field(description="Null: this system does not tell.")
    disks: list[DiskLine] = Field(description="Each once, however many of our folders lie on it.")
    processes: list[ProcessLine] = Field(description="This one first, then the largest it started.")


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
async def show_machine(house: House) -> Machine:
    """Memory, processor, disks and processes. It is answered while the database is away."""
    # in a thread, because a disk may hang; not as a plain route, because its threads may all wait for the database
    return Machine.model_validate(asdict(await asyncio.to_thread(box.look, house.settings)))


@router.get("/server")
def show_server(db: Reading) -> ServerPage:
    """The size of the database, its connections, the dead rows that wait for vacuum, and the sessions that hold vacuum
    back."""
    return ServerPage.model_validate(numbers.look(db))
