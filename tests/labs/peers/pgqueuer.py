"""PgQueuer as its guides advise for short jobs and high throughput: an asyncpg pool, large batches, uvloop.

Tried on 2 cores with 20,000 jobs: a pool or a connection with batch 500 does 16-19 k jobs/s; batch 250 12-15 k, batch
1,000 or 2,000 15 k, five managers in one process with batch 10 (its own benchmark) 8 k, with batch 100 14 k.
"""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from importlib.util import find_spec
from time import process_time
from typing import Any

from snapapp.bench.plan import KIND
from snapapp.bench.roles import pipes

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
    pipes.say(done=True)


async def enqueue(told: dict[str, Any]) -> None:
    """Enqueues as many as it is told, one by one, and says when it has."""
    connection = await import_module("asyncpg").connect(told["url"])
    queries = import_module("pgqueuer").Queries.from_asyncpg_connection(connection)
    await queries.install()
    pipes.say(ready=True)
    while True:
        for number in range(pipes.read()["jobs"]):
            await queries.enqueue(KIND, b'{"number": %d}' % number, 0)
        pipes.say(done=True)


async def drain(told: dict[str, Any]) -> None:
    pool = await import_module("asyncpg").create_pool(told["url"], min_size=2, max_size=6)
    manager = import_module("pgqueuer").PgQueuer.from_asyncpg_pool(pool)
    manager.entrypoint(KIND)(noop)
    mode = import_module("pgqueuer.types").QueueExecutionMode.drain
    pipes.say(ready=True)
    pipes.read()
    began = process_time()
    await manager.run(batch_size=told["batch"], mode=mode)
    pipes.say(cpu=process_time() - began)
    pipes.stay()


def run(work: Coroutine[Any, Any, None]) -> None:
    if find_spec("uvloop"):
        import_module("uvloop").run(work)
    else:
        asyncio.run(work)


def main() -> None:
    told = pipes.read()
    tasks = {"prepare": prepare, "drain": drain, "enqueue": enqueue}
    run(tasks[told["task"]](told))


if __name__ == "__main__":
    main()
