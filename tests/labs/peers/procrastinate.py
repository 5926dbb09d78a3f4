"""Procrastinate with its psycopg connector, an `async def` task and a good deal of concurrency.

Tried on 2 cores: 100 jobs at once over 20 connections do 0.8-0.9 k jobs/s, 30 over 10 or 30 0.6-0.8 k, one 0.5 k.
"""

import asyncio
from importlib import import_module
from typing import Any

from snapapp.bench.plan import KIND
from snapapp.bench.roles import stage

_BULK = 1_000


async def noop() -> None:
    return


async def play(told: dict[str, Any]) -> None:
    procrastinate = import_module("procrastinate")
    connector = procrastinate.PsycopgConnector(conninfo=told["url"], min_size=4, max_size=told["connections"])
    app = procrastinate.App(connector=connector)
    task = app.task(name=KIND)(noop)
    async with app.open_async():
        if told["task"] == "prepare":
            await app.schema_manager.apply_schema_async()
            for start in range(0, told["jobs"], _BULK):
                await task.batch_defer_async(*[{} for _ in range(min(_BULK, told["jobs"] - start))])
            stage.say(done=True)
            return
        stage.say(ready=True)
        stage.read()
        spent = stage.Spent()
        await app.run_worker_async(concurrency=told["concurrency"], wait=False, install_signal_handlers=False)
        stage.say(cpu=spent.cpu())
        stage.stay()


def main() -> None:
    asyncio.run(play(stage.read()))


if __name__ == "__main__":
    main()
