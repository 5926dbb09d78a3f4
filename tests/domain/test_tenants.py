"""Who asks: codes, tokens, and what a new tenant begins with."""

import hashlib
from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import templates, tenants
from snapapp.errors import Conflict, Invalid, TenantNotFound, TokenRequired, TokenWrong
from snapapp.postgres import database
from tests.domain.making import acting, begun
from tests.factory import at_once


@pytest.fixture
def home(engine: sqlalchemy.Engine) -> Iterator[Session]:
    """Outside of any scope, where tenants are found out."""
    with begun(engine) as session:
        yield session


def identify(home: Session, code: str | None = None, token: str | None = None, *, required: bool = True) -> str:
    return tenants.identify(home, code=code, token=token, tokens_required=required).code


def test_where_tokens_are_not_required_the_code_says_who_asks(home: Session) -> None:
    """S24."""
    tenants.add(home, "north", "North")
    assert identify(home, required=False) == "default"
    assert identify(home, "", required=False) == "default"
    assert identify(home, "north", "any token is ignored", required=False) == "north"


def test_where_tokens_are_required_one_must_come_and_be_right(home: Session) -> None:
    """S24."""
    _, token = tenants.add(home, "north", "North")
    assert identify(home, "north", token) == "north"
    assert identify(home, None, token) == "north"
    for missing in (None, ""):
        with pytest.raises(TokenRequired, match=r"^Assinatura API token required$"):
            identify(home, "north", missing)
    for wrong in (token[:-1], token + "x", token.swapcase(), " " + token, "é", "\0", "\ud800", "x" * 100_000):
        for code in ("north", None):
            with pytest.raises(TokenWrong, match=r"^Invalid assinatura API token$"):
                identify(home, code, wrong)


def test_a_token_opens_no_other_tenant(home: Session) -> None:
    _, token = tenants.add(home, "north", "North")
    with pytest.raises(TokenWrong):
        identify(home, "default", token)


def test_the_development_token_is_the_old_services(home: Session) -> None:
    assert identify(home, None, "dev-default-token") == "default"
    assert tenants.with_development_token(home) == "default"
    tenants.rotate_token(home, "default")
    assert tenants.with_development_token(home) is None


@pytest.mark.parametrize("code", ["nobody", "DEFAULT", "default ", "\0", "\ud800", "x" * 10_000, "' OR true --"])
def test_an_unknown_code_is_not_found_and_named(home: Session, code: str) -> None:
    with pytest.raises(TenantNotFound) as raised:
        tenants.by_code(home, code)
    assert str(raised.value) == f"Assinatura not found: {code}"
    assert identify(home, required=False) == "default", "the transaction goes on"


def test_a_tenant_that_is_not_active_is_as_if_it_did_not_exist(home: Session) -> None:
    _, token = tenants.add(home, "north", "North")
    home.connection().exec_driver_sql("UPDATE tenant SET status = 'INACTIVE' WHERE code = 'north'")
    with pytest.raises(TenantNotFound):
        identify(home, "north", required=False)
    with pytest.raises(TenantNotFound):
        identify(home, "north", token)
    with pytest.raises(TokenWrong):
        identify(home, None, token)


def test_a_tenant_without_a_token_opens_to_none(home: Session) -> None:
    tenants.add(home, "north", "North")
    home.connection().exec_driver_sql("UPDATE tenant SET token_hash = NULL WHERE code = 'north'")
    with pytest.raises(TokenWrong):
        identify(home, "north", "None")


def test_tokens_are_stored_as_hashes_only(home: Session) -> None:
    _, token = tenants.add(home, "north", "North")
    [row] = (
        home.connection()
        .exec_driver_sql("SELECT tenant.*::text, token_hash FROM tenant WHERE code = 'north'")
        .fetchall()
    )
    assert token not in row[0]
    assert row[1] == hashlib.sha256(token.encode()).digest()
    assert len(token) >= 32


def test_a_rotated_token_is_dead_at_once(home: Session) -> None:
    _, first = tenants.add(home, "north", "North")
    second = tenants.rotate_token(home, "north")
    assert identify(home, None, second) == "north"
    with pytest.raises(TokenWrong):
        identify(home, None, first)
    for unknown in ("nobody", "\0"):
        with pytest.raises(TenantNotFound):
            tenants.rotate_token(home, unknown)


@pytest.mark.parametrize("code", ["", ".", "..", "a/b", "a\\b", " a", "a\n", "a\0", "\ud800", "a\u202eb", "x" * 101])
def test_a_code_that_could_not_be_in_a_path_is_refused(home: Session, code: str) -> None:
    with pytest.raises(Invalid) as raised:
        tenants.add(home, code, "North")
    assert raised.value.details[0].startswith("code: ")
    assert len(tenants.every(home)) == 1


@pytest.mark.parametrize("code", ["north", "Fazenda São José", "a.b", "x" * 100, "30"])
def test_ordinary_codes_are_taken(home: Session, code: str) -> None:
    assert tenants.add(home, code, "N")[0].code == code
    assert identify(home, code, required=False) == code


def test_of_two_that_add_one_code_at_once_one_is_told(engine: sqlalchemy.Engine) -> None:
    def add() -> str:
        with begun(engine) as session:
            try:
                return tenants.add(session, "north", "North")[0].code
            except Conflict as error:
                return str(error)

    assert sorted(at_once(add, add)) == ["There is an assinatura north already", "north"]


def test_every_tenant_begins_with_its_templates_however_it_comes(engine: sqlalchemy.Engine) -> None:
    """S35: one requires nothing, the cattle template an ear tag."""
    with begun(engine) as home:
        tenants.add(home, "north", "North")
        home.connection().exec_driver_sql("INSERT INTO tenant (code, name) VALUES ('south', 'South')")
    for tenant in ("default", "north", "south"):
        with acting(engine, tenant) as session:
            default, cattle = templates.every(session, tenant)
        assert (default.slug, default.is_default, cattle.slug, cattle.is_default) == ("default", True, "gado", False)
        assert [field.key for field in default.fields] == ["id", "observacoes"]
        assert not any(field.required for field in default.fields)
        assert [(field.key, field.type) for field in cattle.fields if field.required] == [("brinco", "string")]
        assert [field.key for field in cattle.fields if field.type == "number"] == ["peso_referencia"]
        assert [field.key for field in cattle.fields] == [
            *("brinco", "raca", "sexo", "peso_referencia", "condicao_corporal", "lote", "pasto", "observacoes")
        ]


def test_adding_a_tenant_within_a_scope_leaves_the_scope_as_it_was(engine: sqlalchemy.Engine) -> None:
    """The trigger that makes its templates speaks for the new tenant, and then for nobody."""
    with begun(engine) as home:
        home.connection().exec_driver_sql("SELECT set_config('snapapp.tenant', 'default', true)")
        tenants.add(home, "north", "North")
        assert home.connection().exec_driver_sql("SELECT current_setting('snapapp.tenant')").scalar() == "default"
        with database.scope(home, "default"):
            assert len(templates.every(home, "default")) == 2
