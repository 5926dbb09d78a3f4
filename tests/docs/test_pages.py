"""What people read first: it is short, it names nothing that is not there, and what it tells them to type works."""

import json
import re
import runpy
from pathlib import Path

import pytest
import sqlalchemy
from starlette.routing import Match

from snapapp.app import create_app
from snapapp.demo.first_minute import VIDEO
from snapapp.domain import videos
from snapapp.jobs import enqueue
from snapapp.jobs.testing import run_due
from snapapp.settings.table import Settings
from tests import ROOT
from tests.api.conftest import served
from tests.api.examples import as_tenant, count
from tests.docs import imports_picture
from tests.domain.making import an_upload
from tests.factory import Db, scalar

README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("ops/*/*.md")])
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:snapapp|tests|migrations|docs|ops)/[\w./-]+)`")


def test_the_readme_is_read_in_a_minute() -> None:
    assert README.count("\n") <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    lost = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    lost += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert lost == []


def test_what_the_architecture_says_is_in_a_file_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text().replace("\n   ", "")
    named = [(path, name) for name, path in re.findall(r"`([\w.]+)` in `([\w/.]+\.py)`", text)]
    named += re.findall(r"`([\w/.]+\.py)` \(`([\w.]+)`", text)
    assert len(named) > 3
    lost = [
        f"{path}: {part}"
        for path, name in named
        for part in name.split(".")
        if not re.search(rf"(def|class) {part}\b", (ROOT / path).read_text())
    ]
    assert lost == []


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text()
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


@pytest.mark.parametrize("name", imports_picture.PICTURES)
def test_a_picture_shows_the_imports_as_they_are(name: str) -> None:
    drawn = imports_picture.document(imports_picture.PICTURES[name])
    assert (imports_picture.FOLDER / name).read_text() == drawn, "type: make docs"


def test_the_readmes_requests_are_answered(url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db) -> None:
    """The video that it names is the demo's; here it holds nothing."""
    [sent] = re.findall(r"-d '({.*?}})'", README, re.DOTALL)
    [file_name] = re.findall(r"X-File-Name: (\S+)'", README)
    with as_tenant(engine) as own:
        videos.add_upload(own, "default", an_upload(id=VIDEO))
    with served(url, tmp_path, worker_enabled=False) as client:
        answer = client.post("/v2/snaps", json=json.loads(sent))
        assert (answer.status_code, answer.json()["subject"]["id"]) == (202, "BR-1044"), answer.text
        film = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom"
        uploaded = client.post("/v2/videos", content=film, headers={"X-File-Name": file_name})
        assert (uploaded.status_code, uploaded.json()["fileName"]) == (201, file_name)
    assert count(db, "snap") == 1


CURL = re.compile(r"curl (?:-\w+ )*?(?:-X (\w+) )?(?:http://)?(?:localhost|127\.0\.0\.1):8000(/\S+)((?:.*\\\n)*.*)")


def test_what_a_page_asks_with_curl_has_the_method_of_a_route() -> None:
    """How an upload in parts begins was shown as a GET, which is 405."""
    routes = create_app(Settings()).routes
    asked = [found for page in PAGES for found in CURL.findall(page.read_text())]
    lost = []
    for said, path, rest in asked:
        scope = {
            "type": "http",
            "method": said or ("POST" if re.search(r" (-d|--data)", rest) else "GET"),
            "path": path,
        }
        if not any(route.matches(scope)[0] is Match.FULL for route in routes):
            lost.append(f"{scope['method']} {path}")
    assert (bool(asked), lost) == (True, [])


def test_the_readmes_first_job_runs(tmp_path: Path, engine: sqlalchemy.Engine, db: Db) -> None:
    [module] = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    [statement] = re.findall(r"^```sql\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    [payload] = re.findall(r"jobs enqueue mail.send '(.*)'$", README, re.MULTILINE)
    (tmp_path / "mail.py").write_text(module)
    runpy.run_path(str(tmp_path / "mail.py"))
    with engine.begin() as connection:
        enqueue(connection, "mail.send", json.loads(payload))
        enqueue(connection, "mail.send", {"to": "ana"})
        assert sorted(run_due(connection)) == ["mail.send: COMPLETED", "mail.send: FAILED"]
    assert scalar(db, statement.rstrip().rstrip(";")) > 0
