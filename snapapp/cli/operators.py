"""`snapapp operators`: who may sign in for a tenant."""

from argparse import Namespace
from typing import Any

from sqlalchemy.orm import Session

from snapapp.domain import operators, tenants
from snapapp.domain.tables import OperatorRole
from snapapp.jobs.cli.shown import answer, answer_once, show_list
from snapapp.postgres import connections, database
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings


def run(arguments: Namespace, settings: Settings) -> int:
    with in_use(settings) as url, connections.transaction(url) as db:
        with database.unfiltered(db):
            code = tenants.by_code(db, arguments.code).code
        with database.scope(db, code) as own:
            return _act(own, code, arguments, settings.public_base_url or "")


def _act(own: Session, code: str, arguments: Namespace, server: str) -> int:
    match arguments.act:
        case "list":
            return _list(own, code, arguments)
        case "add":
            role = OperatorRole(arguments.role)
            who, secret = operators.add(own, code, arguments.nickname, arguments.email, role)
            return _show_link(arguments, who.id, server + operators.path_of_link(code, secret))
        case "link":
            who, secret = operators.renew_link(own, code, arguments.id)
            return _show_link(arguments, who.id, server + operators.path_of_link(code, secret))
        case "role":
            who = operators.change_role(own, code, arguments.id, OperatorRole(arguments.role))
            return answer(arguments, {"id": who.id, "role": who.role}, f"{who.nickname} is {who.role} from now on.")
    operators.revoke(own, code, arguments.id)
    return answer(arguments, {"id": arguments.id}, f"Operator {arguments.id} cannot sign in any more.")


def _list(own: Session, code: str, arguments: Namespace) -> int:
    fields = ("id", "nickname", "email", "role", "link_changed_at")
    everybody = [{name: getattr(who, name) for name in fields} for who in operators.every(own, code)]
    empty = "Nobody has a personal link: who signs in does so with the tenant's token."
    return show_list(arguments, everybody, ["id", "role", "email", "name"], _line, empty=empty)


def _line(its: dict[str, Any]) -> list[str]:
    return [str(its["id"]), its["role"], its["email"], its["nickname"]]


def _show_link(arguments: Namespace, operator_id: int, link: str) -> int:
    message = f"The personal link of operator {operator_id}, which is kept nowhere and not shown again:\n{link}"
    if link.startswith("/"):
        message += "\nPut the address of the server before it: SNAPAPP_PUBLIC_BASE_URL, which would do so, is not set."
    return answer_once(arguments, {"id": operator_id, "link": link}, message)
