"""`snapapp tenants …` as people type it."""

import os

import pytest
import sqlalchemy

from snapapp.domain import tenants
from snapapp.errors import TokenWrong
from tests.commands import Call
from tests.domain.making import begun
from tests.factory import Db


@pytest.mark.parametrize("typed", ["tenants add", "tenants rotate-token", "tenants forget north"])
def test_what_cannot_be_understood_exits_with_2(call: Call, typed: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert "usage: snapapp tenants" in answer.err


def test_a_tenant_is_added_listed_and_given_another_token(call: Call, engine: sqlalchemy.Engine) -> None:
    """S24."""
    said = call("tenants", "add", "north", "--name", "North Farm").out.splitlines()
    assert said[0] == "The token of north, which is kept nowhere and not shown again:"
    lines = [line.split() for line in call("tenants", "list").out.splitlines()]
    assert lines[0] == ["CODE", "STATUS", "TOKEN", "ADDED", "NAME"]
    assert [line[:3] for line in lines[1:]] == [["default", "ACTIVE", "since"], ["north", "ACTIVE", "since"]]
    assert lines[2][-2:] == ["North", "Farm"]
    second = call("tenants", "rotate-token", "north", "--json").json
    assert second["code"] == "north"
    with begun(engine) as session:
        assert tenants.by_token(session, second["token"]).name == "North Farm"
        with pytest.raises(TokenWrong):
            tenants.by_token(session, said[1])


def test_a_list_never_holds_a_token(call: Call) -> None:
    token = call("tenants", "add", "north", "--json").json["token"]
    [_, north] = call("tenants", "list", "--json").json
    assert north["has_token"] is True
    assert token not in str(north)
    assert "hash" not in str(north)


@pytest.mark.parametrize("typed", ["tenants list", "operators list default", "demo"])
def test_who_may_see_no_tenant_is_not_told_that_there_is_none(
    call: Call, url: str, db: Db, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """As the role that the doctor's page recommends, which reads all tables."""
    reader = f"reader_{os.getpid()}"
    db.execute(f"CREATE ROLE {reader} LOGIN; GRANT pg_read_all_data TO {reader}")
    try:
        monkeypatch.setenv("SNAPAPP_DATABASE_URL", sqlalchemy.make_url(url).set(username=reader).render_as_string())
        answer = call(*typed.split())
    finally:
        db.execute(f"DROP ROLE {reader}")
    assert (answer.code, answer.out) == (1, "")
    assert "row-level security" in answer.err


@pytest.mark.parametrize("code", ["", "a/b", "..", " north", "no\nrth", "a" * 101, "\udcff", "a\\b"])
def test_a_code_that_cannot_be_one_is_refused_in_one_line(call: Call, code: str) -> None:
    answer = call("tenants", "add", code)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("snapapp: Validation failed: code: ")
    assert answer.err.count("\n") == 1


def test_a_code_that_is_taken_or_unknown_is_one_line(call: Call) -> None:
    assert call("tenants", "add", "default").err == "snapapp: There is an assinatura default already\n"
    assert call("tenants", "rotate-token", "nobody").err == "snapapp: Assinatura not found: nobody\n"


def test_a_name_that_begins_with_a_dash_is_no_option(call: Call) -> None:
    assert call("tenants", "add", "--json", "--", "-x").json["code"] == "-x"
