"""`snapapp operators …` as people type it."""

import pytest
import sqlalchemy

from snapapp.cli import people
from snapapp.domain import operators
from snapapp.domain.tables import OperatorRole
from snapapp.errors import LinkWrong
from tests.commands import Call
from tests.domain.making import begun


def test_every_role_can_be_typed() -> None:
    assert tuple(OperatorRole) == people.ROLES


def secret_of(link: str) -> str:
    return link.rpartition("/")[2]


def test_an_operator_is_added_listed_given_another_link_and_revoked(call: Call, engine: sqlalchemy.Engine) -> None:
    """S33."""
    first = call("operators", "add", "default", "Ana", "ana@fazenda.example", "--role", "reviewer", "--json").json
    assert call("operators", "list", "default").out.splitlines()[1].split() == [
        str(first["id"]),
        "reviewer",
        "ana@fazenda.example",
        "Ana",
    ]
    assert secret_of(first["link"]) not in call("operators", "list", "default", "--json").out
    said = call("operators", "link", "default", str(first["id"])).out.splitlines()
    assert said[1].startswith("/sign-in/default/")
    assert "SNAPAPP_PUBLIC_BASE_URL" in said[2]
    with begun(engine) as session:
        assert operators.whose(session, "default", secret_of(said[1]))[1].nickname == "Ana"
        with pytest.raises(LinkWrong):
            operators.whose(session, "default", secret_of(first["link"]))
    changed = call("operators", "role", "default", str(first["id"]), "admin", "--json").json
    assert changed == {"id": first["id"], "role": "admin"}
    assert call("operators", "role", "default", str(first["id"]), "operator").out == "Ana is operator from now on.\n"
    assert call("operators", "list", "default").out.splitlines()[1].split()[1] == "operator"
    assert "cannot sign in any more" in call("operators", "revoke", "default", str(first["id"])).out
    assert "Nobody has a personal link" in call("operators", "list", "default").out
    assert (
        call("operators", "revoke", "default", str(first["id"])).err == f"snapapp: Operator not found: {first['id']}\n"
    )


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("operators add default Ana ana", "email: must be an e-mail address"),
        ("operators list nobody", "Assinatura not found: nobody"),
        ("operators link default 7", "Operator not found: 7"),
        ("operators role default 7 admin", "Operator not found: 7"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call: Call, typed: str, why: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert why in answer.err


@pytest.mark.parametrize(
    "typed",
    [
        "operators",
        "operators add default",
        "operators add default A a@b --role owner",
        "operators role default 7",
        "operators role default 7 owner",
        "operators role default ana admin",
    ],
)
def test_what_cannot_be_understood_exits_with_2(call: Call, typed: str) -> None:
    answer = call(*typed.split())
    assert (answer.code, answer.out) == (2, "")
    assert "usage: snapapp operators" in answer.err
