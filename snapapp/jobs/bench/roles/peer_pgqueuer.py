"""PgQueuer as its guides advise for short jobs: asyncpg, large batches, uvloop, an `async def` entrypoint."""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from snapapp.jobs.bench.plan import KIND
from snapapp.jobs.bench.roles import stage

_BULK = 5_000


async def noop(_: Any) -> None:
    return


async def prepare(told: dict[str, Any]) -> None:
    connection = await import_module("asyncpg").connect(told["url"])
    queries = import_module("pgqueuer").Queries.from_asyncpg_connection(connection)
    await queries.install()
    for start in range(0, told["jobs"], _BULK):
        count = min(_BULK, told["jobs"] - start)
        await queries.enqueue([KIND] * count, [None] * count, [0] * count)
    await connection.close()
    stage.say(done=True)


async def drain(told: dict[str, Any]) -> None:
    connection = await import_module("asyncpg").connect(told["url"])
    manager = import_module("pgqueuer").PgQueuer.from_asyncpg_connection(connection)
    manager.entrypoint(KIND)(noop)
    mode = import_module("pgqueuer.types").QueueExecutionMode.drain
    stage.say(memory=stage.memory())
    stage.told()
    spent = stage.Spent()
    await manager.run(batch_size=told["batch"], mode=mode)
    stage.say(cpu=spent.cpu(), memory=stage.memory())
    stage.stay()


def run(work: Coroutine[Any, Any, None]) -> None:
    if find_spec("uvloop"):
        import_module("uvloop").run(work)
    else:
        asyncio.run(work)


def main() -> None:
    told = stage.told()
    run(prepare(told) if told["task"] == "prepare" else drain(told))


if __name__ == "__main__":
    main()
