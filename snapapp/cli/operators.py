"""`snapapp operators`: who may sign in for a tenant."""

from argparse import Namespace

from sqlalchemy.orm import Session

from snapapp.domain import operators, tenants
from snapapp.domain.tables import OperatorRole
from snapapp.jobs import cli
from snapapp.jobs.cli.shown import answer, say
from snapapp.postgres import connections, database
from snapapp.postgres.in_use import in_use
from snapapp.settings.table import Settings


def run(arguments: Namespace, settings: Settings) -> int:
    with in_use(settings) as url, connections.transaction(url) as db:
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
            secret = operators.renew_link(own, code, arguments.id)
            return _show_link(arguments, arguments.id, server + operators.path_of_link(code, secret))
    operators.revoke(own, code, arguments.id)
    return answer(arguments, {"id": arguments.id}, f"Operator {arguments.id} cannot sign in any more.")


def _list(own: Session, code: str, arguments: Namespace) -> int:
    everybody = operators.every(own, code)
    if arguments.json:
        fields = ("id", "nickname", "email", "role", "link_changed_at")
        cli.show_json([{name: getattr(who, name) for name in fields} for who in everybody])
    elif everybody:
        lines = [[str(who.id), str(who.role), who.email, who.nickname] for who in everybody]
        cli.show_table(["id", "role", "email", "name"], lines)
    else:
        say("Nobody has a personal link: who signs in does so with the tenant's token.")
    return 0


def _show_link(arguments: Namespace, operator_id: int, link: str) -> int:
    message = f"The personal link of operator {operator_id}, which is kept nowhere and not shown again:\n{link}"
    return answer(arguments, {"id": operator_id, "link": link}, message)
