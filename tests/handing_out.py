"""How pytest-xdist hands out the tests to the processes of tests/side_by_side.py: a file at a time, because its tests
may share a server. The files of the browser go to two processes only: in each process that gets one, a browser and a
server begin, which take a processor two seconds."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling


@pytest.hookimpl(optionalhook=True)  # pytest meets this before it meets xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return _ByFile(config, log)


class _ByFile(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if not file.startswith("tests/web/"):
            return file
        return "tests/web, a to m" if "tests/web/test_a" <= file < "tests/web/test_n" else "tests/web, the rest"
