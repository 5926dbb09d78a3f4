"""The labs of /ops in small; `python -m tests.labs console --help` says how to run them in full."""

import pytest

from tests.labs.console import bulk, stage


@pytest.mark.at_length  # web/test_ops has the dialog, api/internal/test_failures the steps, in every run
@pytest.mark.skipif(stage.program() is None, reason="there is no browser")
def test_thousands_are_retried_from_the_page_while_a_worker_works() -> None:
    seen = bulk.run(jobs=3000, seconds=2)
    assert seen.retried == 3000
    assert 0 < seen.stopped_at == seen.retried_until_stopped < 3000
    assert [jobs for _, jobs in seen.audited] == [3000, seen.stopped_at]
    assert seen.meanwhile.ended > 0
