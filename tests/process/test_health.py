"""What health says of a server that does not answer."""

import asyncio

import pytest

from snapapp.process import health
from snapapp.process.health import Health
from snapapp.process.monolith import Monolith
from snapapp.settings.table import Settings
from tests.postgres.frozen import may_freeze


@pytest.mark.direct
def test_a_server_that_stands_still_is_left_for_the_one_that_has_taken_its_place(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Health never asked anybody else, and a load balancer kept a process out that worked."""
    for name, seconds in {"_ANSWER_WITHIN": 0.1, "_GIVES_UP_AFTER": 0.5, "_FRESH_FOR": 0.0}.items():
        monkeypatch.setattr(health, name, seconds)
    monolith = Monolith(Settings())

    async def states_after_the_freeze() -> set[bool]:
        its = Health(monolith)
        try:
            while not (await its.database()).is_up:  # the first answer may take longer
                await asyncio.sleep(0.01)
            frozen.way.freeze()
            seen = {(await its.database()).is_up}
            async with asyncio.timeout(20):
                while True not in seen:
                    seen.add((await its.database()).is_up)
                    await asyncio.sleep(0.01)
            return seen
        finally:
            its.close()

    with may_freeze(url, tmp_path_factory.mktemp("f")) as frozen:
        monolith.url, monolith.waits_for = frozen.url, None
        assert asyncio.run(states_after_the_freeze()) == {False, True}
