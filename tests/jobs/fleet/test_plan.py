"""Plans: what a file may say, and what is said of one that cannot be followed."""

from datetime import timedelta
from pathlib import Path

import pytest

from snapapp.jobs import Job
from snapapp.jobs.fleet.errors import InvalidPlan
from snapapp.jobs.fleet.plan import OPTIONS, Balance, Pool, in_words, pool_of, without_a_file
from snapapp.jobs.fleet.plan_file import LARGEST, load, parse
from snapapp.jobs.fleet.worker_process import PoolRegistry
from snapapp.jobs.registry import Registry
from snapapp.jobs.settings import JobsSettings, RetrySettings

GOOD = """\
reserve_mb = 300
max_processes = 12

[environments.prod.mail]
min_processes = 2
max_processes = 8
balance = "auto"
max_jobs = 1000
max_time_s = 3600
memory_mb = 512
timeout_s = 60
nice = 5
concurrency = 1

[environments.prod."reports"]
queues = ["reports", "exports"]

[environments.dev]
everything = { queues = [], max_processes = 2 }
"""


def mistakes(text: str, environment: str = "prod") -> list[str]:
    with pytest.raises(InvalidPlan) as caught:
        parse(text, environment)
    return caught.value.mistakes


def test_a_plan_is_read_whole() -> None:
    """M50, M54, M60: a pool is named for its queue, and works it unless it says otherwise."""
    plan = parse(GOOD, "prod")
    mail, reports = plan.pools
    assert (plan.max_processes, plan.reserve_mb, plan.most_processes) == (12, 300, 9)
    assert (mail.name, mail.queues, mail.min_processes, mail.max_processes) == ("mail-supervisor", ("mail",), 2, 8)
    assert (mail.balance, mail.max_jobs, mail.max_time) == (Balance.AUTO, 1000, timedelta(hours=1))
    assert (mail.cooldown, mail.max_shift, mail.scale_up_threshold, mail.scale_down_threshold) == (
        timedelta(seconds=3),
        1,
        3.0,
        1.0,
    )
    assert (reports.name, reports.queues) == ("reports-supervisor", ("reports", "exports"))
    assert (reports.balance, reports.max_processes, reports.starts_with) == (Balance.OFF, 1, 1)
    assert (mail.starts_with, reports.starts_with) == (2, 1)
    [everything] = parse(GOOD, "dev").pools
    assert (everything.queues, everything.max_processes) == ((), 2)


def test_without_a_file_there_is_one_pool_over_all_queues() -> None:
    [pool] = without_a_file().pools
    assert (pool.name, pool.queues, pool.balance) == ("default-supervisor", (), Balance.AUTO)


def test_a_worker_has_what_its_pool_says_and_else_what_the_settings_say() -> None:
    mail = parse(GOOD, "prod").pools[0]
    base = JobsSettings(database_url="postgresql://", concurrency=7, children=3)
    its = mail.adapt(base, "mail-1", "master")
    assert (its.queues, its.concurrency, its.children, its.timeout) == (("mail",), 1, 3, timedelta(minutes=1))
    assert its.worker_name == "mail-1"
    assert its.membership
    assert (its.membership.pool, its.membership.max_jobs, its.membership.max_memory_mb) == (
        "mail-supervisor",
        1000,
        512,
    )


def test_a_pool_works_its_queue_with_a_lease_a_beat_a_poll_and_retries_of_its_own() -> None:
    text = "[environments.prod.slow]\nlease_s = 600\nbeat_s = 60\npoll_s = 30\nretry_base_s = 120\nretry_max_s = 3600"
    [slow] = parse(text, "prod").pools
    base = JobsSettings(database_url="postgresql://", retry=RetrySettings(multiplier=3))
    its = slow.adapt(base, "slow-1", "master")
    assert (its.lease_for, its.beat_every) == (timedelta(minutes=10), timedelta(minutes=1))
    assert its.poll_delay == timedelta(seconds=30)
    assert its.retry == RetrySettings(base=timedelta(minutes=2), multiplier=3, maximum=timedelta(hours=1))
    with pytest.raises(ValueError, match="the lease must outlast three beats: 60 s is not more than 3 x 20 s"):
        Pool(name="x", beat_every=timedelta(seconds=20)).adapt(base, "x-1", "master")


def test_a_pool_travels_to_its_worker_and_stays_what_it_is() -> None:
    for pool in parse(GOOD, "prod").pools:
        assert pool_of(pool.name, pool.as_table()) == pool


def test_every_option_is_described(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(GOOD)
    said = "\n".join(in_words(load(file, "prod")))
    assert f"From {file}, environment prod: 2 pools, together at most 12; scaling leaves 300 MB" in said
    for option in OPTIONS.values():
        assert said.count(f"\n  {option.key} ") == 2
    assert "max_time_s             3600 " in said
    assert "children               as the settings say" in said


# --- what cannot be followed ------------------------------------------------------------------------------------


def test_every_mistake_is_named_at_once_with_its_line() -> None:
    text = """\
reserve = 3

[environments.prod.mail]
max_processes = "many"
balnce = "auto"
nice = 99

[environments.prod.reports]
timeout_s = -1
"""
    assert mistakes(text) == [
        "plan line 1: reserve is not an option; did you mean reserve_mb?",
        "plan line 4: mail.max_processes = 'many' is not a whole number from 1 to 1000",
        "plan line 5: environments.prod.mail.balnce is not an option; did you mean balance?",
        "plan line 6: mail.nice = 99 is not a whole number from 0 to 19",
        "plan line 9: reports.timeout_s = -1 is not a number from 0.001 to 604800 (seconds)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[environments.prod.mail\n", "line 1: Expected"),
        ("[environments.prod.mail]\nnice = \n", "line 2: Invalid value"),
        ("[environments.prod.mail]\nnice = 1\nnice = 2\n", "line 3: Cannot overwrite a value"),
        ("", "line 1: there is no environment 'prod', but none at all"),
        ("[environments.test.mail]\n", "line 1: there is no environment 'prod', but test"),
        ("[environments.prod]\n", "line 1: the environment prod has no pool"),
        ("environments = 3\n", "line 1: environments is not a table"),
        ("[environments]\nprod = 3\n", "line 2: environments.prod is not a table"),
        ("[environments.prod]\nmail = 3\n", "line 2: environments.prod.mail is not a table"),
        ('[environments.prod."a b"]\n', "line 1: 'a b' cannot be the name of a pool or queue"),
        ('[environments.prod.""]\n', "line 1: '' cannot be the name of a pool or queue"),
        ("[environments.prod.mail]\nmax_jobs = true\n", "line 2: mail.max_jobs = True is not a whole number"),
        ("[environments.prod.mail]\nmax_jobs = 1e3\n", "line 2: mail.max_jobs = 1000.0 is not a whole number"),
        ("[environments.prod.mail]\nmax_time_s = nan\n", "line 2: mail.max_time_s = nan is not a number"),
        ("[environments.prod.mail]\nmax_time_s = inf\n", "line 2: mail.max_time_s = inf is not a number"),
        ('[environments.prod.mail]\nqueues = "mail"\n', "line 2: mail.queues = 'mail' is not a list of queue names"),
        ('[environments.prod.mail]\nqueues = ["a", 1]\n', "line 2: mail.queues = ['a', 1] is not a list"),
        ('[environments.prod.mail]\nbalance = "AUTO"\n', "line 2: mail.balance = 'AUTO' is not one of off, simple"),
        ("[environments.prod.mail]\nmin_processes = 3\nmax_processes = 2\n", "line 2: mail: min_processes = 3 is more"),
        (
            "[environments.prod.mail]\nscale_down_threshold = 5\n",
            "line 2: mail: scale_down_threshold = 5 is not below scale_up_threshold = 3: it would flap",
        ),
        (
            "max_processes = 1\n[environments.prod.a]\n[environments.prod.b]\n",
            "line 1: max_processes = 1 is too few: its pools begin with 2 processes",
        ),
        (f"a = {'[' * 5000}{']' * 5000}", "is nested too deeply"),
    ],
)
def test_a_plan_that_cannot_be_followed_says_where_and_why(text: str, said: str) -> None:
    [mistake, *_] = mistakes(text)
    assert said in mistake


def test_an_environment_that_is_not_used_is_checked_as_well() -> None:
    """Validated as a whole: the mistake is found here and not on the day of the deploy."""
    assert mistakes(GOOD.replace("max_processes = 2 }", "max_processes = 0 }"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, binary, large = (tmp_path / name for name in ("missing", "binary", "large"))
    binary.write_bytes(b"\xff\xfe")
    large.write_bytes(b"#" * (LARGEST + 1))
    for file, said in (
        (missing, "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not UTF-8"),
        (large, "larger"),
    ):
        with pytest.raises(InvalidPlan, match=said) as caught:
            load(file, "prod")
        assert str(file) in str(caught.value)


def test_lines_are_found_behind_comments_texts_and_dotted_keys() -> None:
    text = """\
# a plan
environments.prod.first.nice = 99  # dotted

[environments.prod."second"]  # quoted
queues = [
  "one", # nice = 1
  "two",
]
"nice" = 99
"""
    assert [mistake.partition(":")[0] for mistake in mistakes(text)] == ["plan line 2", "plan line 9"]


def test_the_defaults_are_those_of_the_seed() -> None:
    """M54, M60."""
    pool = Pool(name="x")
    assert (pool.min_processes, pool.cooldown, pool.max_shift) == (1, timedelta(seconds=3), 1)
    assert (pool.scale_up_threshold, pool.scale_down_threshold, pool.nice) == (3.0, 1.0, 0)


def test_a_pool_without_children_leaves_their_jobs_to_others() -> None:
    """A warm child that waits for nothing would cost as much as the worker itself."""
    whole = Registry()

    @whole.processor("in.a.thread")
    def in_a_thread(job: Job) -> None: ...

    whole.processor("in.a.child", executor="process")(child)
    chosen = PoolRegistry(whole, Pool(name="x", children=0).leaves_out)
    assert (chosen.kinds(), [one.kind for one in chosen], len(chosen)) == (("in.a.thread",), ["in.a.thread"], 1)
    assert ("in.a.child" in chosen, chosen.get("in.a.child").executor) == (False, "process")
    assert PoolRegistry(whole, Pool(name="x", children=2).leaves_out).kinds() == whole.kinds()
    assert Pool(name="x").leaves_out == frozenset()


def child(job: Job) -> None: ...
