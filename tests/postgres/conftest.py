"""Directories for embedded servers, and processes that use them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snapapp.postgres import start as start_server
from tests.postgres.clusters import Adopter, put_down


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster as initdb leaves it, to be copied where the test is not about initdb."""
    data_dir = tmp_path_factory.mktemp("template") / "var"
    start_server(data_dir, create=True).stop()
    return data_dir


@pytest.fixture
def empty_dir(tmp_path: Path) -> Iterator[Path]:
    data_dir = tmp_path / "var"
    yield data_dir
    put_down(data_dir)


@pytest.fixture
def data_dir(template: Path, empty_dir: Path) -> Path:
    shutil.copytree(template, empty_dir)
    return empty_dir


@pytest.fixture
def adopters(data_dir: Path) -> Iterator[Callable[[], Adopter]]:
    born: list[Adopter] = []

    def bear() -> Adopter:
        born.append(Adopter(data_dir))
        return born[-1]

    yield bear
    for adopter in born:
        adopter.kill()
        adopter.close()
