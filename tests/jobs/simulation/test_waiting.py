"""Whose turn it is, beside the plainest way to say so: look at everything, every time."""

import random
from collections import Counter
from fnmatch import fnmatchcase
from math import inf

import pytest

from snapapp.jobs.fleet.plan import Pool
from snapapp.jobs.simulation.load import Work
from snapapp.jobs.simulation.waiting import Waiting, works

LIMITS = {"kind:*": 2, "kind:b": 1, "queue:slow": 3, "key:cow:*": 1, "key:cow:7": 0}
POOLS = (Pool(name="all"), Pool(name="slow", queues=("slow",)))


def limits_of(work: Work) -> list[tuple[str, int]]:
    keys = [f"queue:{work.queue}", f"kind:{work.kind}", *([f"key:{work.key}"] if work.key else [])]
    fitting = [(key, [name for name in LIMITS if fnmatchcase(key, name)]) for key in keys]
    return [
        (key, LIMITS[max(names, key=lambda name: (not name.endswith("*"), len(name)))])
        for key, names in fitting
        if names
    ]


def whose_turn(waiting: list[Work], running: Counter[str], pool: Pool) -> Work | None:
    fitting = [
        work
        for work in waiting
        if works(pool, work.queue) and all(running[key] < most for key, most in limits_of(work))
    ]
    return min(fitting, key=lambda work: (-work.priority, work.at), default=None)


@pytest.mark.parametrize("seed", range(30))
def test_the_turn_is_that_of_a_look_at_everything(seed: int) -> None:
    dice = random.Random(seed)
    waiting, running = Waiting(LIMITS), Counter[str]()
    plain: list[Work] = []
    runs: list[Work] = []
    for turn in range(400):
        if dice.random() < 0.5:
            work = Work(
                turn,
                1.0,
                dice.choice("abcde"),
                queue=dice.choice(["default", "slow", "other"]),
                priority=dice.choice([0, 0, 0, 5]),
                key=dice.choice(["", "cow:1", "cow:7", "free"]),
            )
            waiting.add(work)
            plain.append(work)
        elif runs and dice.random() < 0.4:
            ended = runs.pop(dice.randrange(len(runs)))
            waiting.give_back(ended)
            running.subtract(key for key, _ in limits_of(ended))
        else:
            pool = dice.choice(POOLS)
            due, since = waiting.due(pool)
            expected = whose_turn(plain, running, pool)
            assert (expected is None) == (due == 0) == (since == inf)
            taken = waiting.take(pool)
            assert taken is expected
            if taken is not None:
                plain.remove(taken)
                runs.append(taken)
                running.update(key for key, _ in limits_of(taken))
        assert waiting.size == len(plain)
