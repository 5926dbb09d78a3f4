"""What the API says of itself is what it does: schemathesis asks a real server everything it can think of.

With --everything it asks more. The long form, of some minutes: `SNAPAPP_CONTRACT_EXAMPLES=1000
SNAPAPP_CONTRACT_SECONDS=600 pytest tests/api/http/test_contract.py --timeout 900`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snapapp.jobs.model import Status
from tests.factory import Db, make_job
from tests.running import Served

TOKEN = "a-token-for-the-contract"


# Ids are learnt from answers, and that of an enqueue that met a held key is null: the job "null" may be refused. And
# JSON Schema can say neither that keys are distinct, nor that a URL's host is one, nor what a film begins with, nor
# what goes together in a search. A remote video is a 502 where there is no such server.
CONFIG = """
[[operations]]
include-path-regex = "^/internal/jobs/.job_id"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path-regex = "^/v2/(snaps|videos|webhooks)"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path-regex = "^/v2/uploads"
checks.positive_data_acceptance.enabled = false
checks.negative_data_rejection.expected-statuses = ["4xx"]  # 412, as tus has it

[[operations]]
include-path-regex = "^/v2/videos/(.video_id./content|remote)"
checks.positive_data_acceptance.enabled = false
checks.not_a_server_error.enabled = false
"""


# JSON Schema cannot say that 200 characters of text may be more than the 200 bytes which fit, nor that no text
# within a payload may hold a NUL. So what means well keeps to ASCII, and what does not need not be accepted.
@pytest.mark.parametrize(
    "manner",
    [
        pytest.param(["--generation-codec=ascii", "--generation-allow-x00=false"], id="well-meant"),
        pytest.param(
            ["--exclude-checks=positive_data_acceptance", "--phases=fuzzing"],
            id="hostile",
            marks=pytest.mark.at_length,  # test_hostile has what it found, in every run
        ),
    ],
)
def test_the_server_does_what_it_says_whatever_is_asked(
    url: str, tmp_path: Path, db: Db, nightly: str, manner: list[str], everything: bool
) -> None:
    """S25, FC21, R50: no 5xx, no answer outside of the description, nothing served without the token."""
    for status in Status:
        make_job(db, status)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    examples = os.environ.get("SNAPAPP_CONTRACT_EXAMPLES", "8" if everything else "2")
    seconds = os.environ.get("SNAPAPP_CONTRACT_SECONDS", "25" if everything else "4")
    argv = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file=schemathesis.toml",
        "--no-color",
        "run",
        f"--header=X-Internal-Token: {TOKEN}",
        f"--max-examples={examples}",
        f"--max-time={seconds}",
        "--seed=1",
        "--exclude-path=/internal/jobs/stream",  # these never end; tests/api/internal/test_live.py has them,
        "--exclude-path=/v2/events",  # and test_snap_events.py
        "--exclude-operation-id=appendToUpload",  # schemathesis cannot write its kind of body
        # its answer names every path, and schemathesis takes /internal/jobs/bulk for a job with the id "bulk"
        "--exclude-path=/internal/observability/http-metrics",
        *manner,
    ]
    settings = {"SNAPAPP_INTERNAL_TOKEN": TOKEN, "SNAPAPP_WORKER_CHILDREN": "1", "SNAPAPP_SYNC_WAIT_MS": "200"}
    with Served(tmp_path, SNAPAPP_DATABASE_URL=url, **settings).up() as served:
        served.ask("/openapi.json")  # made when it is first asked for, which takes a busy machine long
        argv.append(f"http://127.0.0.1:{served.port}/openapi.json")
        asked = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "A request failed" not in served.said(), served.said()
    print(asked.stdout)


def test_the_description_is_complete(url: str, tmp_path: Path) -> None:
    """Every operation is named, described and says what can go wrong; 422 nowhere."""
    with Served(tmp_path, SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false").up() as served:
        described = served.ask("/openapi.json").body
    operations = [(path, operation) for path, methods in described["paths"].items() for operation in methods.values()]
    names = [operation["operationId"] for _, operation in operations]
    assert len({*names}) == len(names)
    assert {tag for _, operation in operations for tag in operation["tags"]} == {
        tag["name"] for tag in described["tags"]
    }
    for path, operation in operations:
        assert re.fullmatch(r"[a-z][A-Za-z]+", operation["operationId"]), operation["operationId"]
        assert operation["description"], path
        assert "422" not in operation["responses"], path
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (path, parameter["name"])
        if path.startswith("/internal"):
            assert operation["security"] == [{"InternalToken": []}]
            assert {"401", "403", "503"} <= operation["responses"].keys(), path
        if "requestBody" in operation:
            assert {"400", "413"} <= operation["responses"].keys(), path
    assert not {"HTTPValidationError", "ValidationError"} & described["components"]["schemas"].keys()
    assert described["info"]["version"]
