"""The arguments of `snapapp tenants` and `snapapp operators`."""

from argparse import _SubParsersAction

from snapapp.cli.parser import Parser, add_command

ROLES = ("operator", "reviewer", "admin")  # OperatorRole's, without the import of the tables: help answers at once


def add_commands(commands: "_SubParsersAction[Parser]") -> None:
    shared = Parser(add_help=False)
    shared.add_argument("--json", action="store_true", help="for programs")
    code = Parser(add_help=False)
    code.add_argument("code", metavar="CODE", help="what X-Assinatura-Codigo says")

    tenants = _family(commands, "tenants", "list or add tenants, give one a new token")
    tenants.add_parser("list", help="list the tenants", parents=[shared])
    adding = tenants.add_parser("add", help="add a tenant and show its token, once", parents=[code, shared])
    adding.add_argument("--name", metavar="NAME", help="for people (default: its code)")
    what = "give a tenant a new token, shown once; the old one is dead at once"
    add_command(tenants, "rotate-token", what, parents=[code, shared])

    operators = _family(commands, "operators", "list, add, change or revoke the people of a tenant who sign in")
    operators.add_parser("list", help="list who may sign in", parents=[code, shared])
    adding = add_command(
        operators, "add", "let a person sign in, and show their personal link, once", parents=[code, shared]
    )
    adding.add_argument("nickname", metavar="NAME", help="under which they mark moments")
    adding.add_argument("email", metavar="EMAIL", help="what was marked under it is theirs")
    adding.add_argument("--role", choices=ROLES, default="operator", help="what they may change (default: operator)")
    person = Parser(add_help=False)
    person.add_argument("id", metavar="ID", type=int, help="of the operator, as the list has it")
    changing = add_command(
        operators,
        "role",
        "change a person's role at once; their link and sessions stay",
        parents=[code, person, shared],
    )
    changing.add_argument("role", metavar="ROLE", choices=ROLES, help="what they may change: %(choices)s")
    for act, what in (
        ("link", "make a new personal link, shown once; the old one and its sessions end at once"),
        ("revoke", "end a person's link and sessions at once; what they marked stays"),
    ):
        add_command(operators, act, what, parents=[code, person, shared])


def _family(commands: "_SubParsersAction[Parser]", name: str, what: str) -> "_SubParsersAction[Parser]":
    return add_command(commands, name, what).add_subparsers(dest="act", metavar="COMMAND", required=True)
