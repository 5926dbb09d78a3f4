"""The commands around the queue and its database: psql, migrate, config, doctor, check-deploy, kinds. They also work
with the queue alone, without the product."""

from argparse import Namespace
from collections.abc import Iterable

from snapapp import postgres
from snapapp.jobs import doctor, registry
from snapapp.jobs.amounts import milliseconds
from snapapp.jobs.cli import audited
from snapapp.jobs.cli.shown import say, show_json, show_list
from snapapp.jobs.cli.tables import show_table
from snapapp.jobs.process import kinds
from snapapp.postgres import schema
from snapapp.postgres.in_use import in_use
from snapapp.processing import compute_check, loading
from snapapp.processing.decoder import check as decoders
from snapapp.settings.explained import explain
from snapapp.settings.table import Settings


def psql(arguments: Namespace, settings: Settings) -> int:
    with in_use(settings) as url:
        code = postgres.run_psql(url, arguments.arguments)
    return code if code >= 0 else 128 - code


def migrate(arguments: Namespace, settings: Settings) -> int:
    # imported here, because Alembic is slow to import
    from snapapp.jobs import migrations as queue
    from snapapp.postgres import migrate as migrations

    product = settings.has_product
    with in_use(settings) as url:
        why = schema.trouble(url, product=product)
        if why is None:
            say("The database has the newest schema.")
            return 0
        if arguments.check:
            say(why)
            return 1
        migrations.migrate(url) if product else queue.migrate(url)
        revisions = " and ".join(f"{one.head} of the {one.name}" for one in schema.histories(product=product))
        say(f"The database is now at revision {revisions}.")
        return 0


def config(arguments: Namespace, settings: Settings) -> int:
    rows = explain(settings)
    if arguments.json:
        show_json(rows)
    elif arguments.explain:
        show_table(
            ["setting", "value", "from", "meaning"],
            [[row.name, row.value, row.source, row.description] for row in rows],
            whole={0},
            wraps=True,
        )
    else:
        show_table(["setting", "value"], [[row.name, row.value] for row in rows])
    return 0


def diagnose(arguments: Namespace, settings: Settings) -> int:
    # imported here, because SQLAlchemy is slow to import
    from snapapp.processing import checks

    with in_use(settings) as url:
        facts = checks.facts(settings, url)
        findings = doctor.examine(url, facts, only=arguments.only)
        deeds = doctor.mend(url, findings, facts, audited.actor()) if arguments.fix else []
        if deeds:  # shows the state after the repairs
            findings = doctor.examine(url, facts, only=arguments.only)
    if arguments.json:
        show_json(doctor.as_json(findings, deeds))
    else:
        _say_lines(doctor.in_words(findings, deeds))
    return 2 if doctor.saw_nothing(findings) else int(doctor.needs_a_person(findings))


def check_deploy(arguments: Namespace, settings: Settings) -> int:
    loading.load(settings)
    with in_use(settings) as url, doctor.consulting(url) as line:
        deploy = doctor.compare(line, registry.default)
    missing = decoders.in_one_line() if settings.has_product else None
    cluster = compute_check.in_one_line(settings.compute) if settings.compute else None
    if arguments.json:
        show_json(deploy.as_json() | {"decoders": missing, "compute": cluster})
    else:
        _say_lines(doctor.of_deploy(deploy))
        _say_lines(f"Beside it: {said}." for said in (missing, cluster) if said)
    return 0 if deploy.is_safe else 1


def show_kinds(arguments: Namespace, settings: Settings) -> int:
    loading.load(settings)
    declared = kinds.summaries(registry.default)
    headers, empty = ("kind", "queue", "executor", "attempts", "timeout", "payload"), "This code declares no kind."
    return show_list(arguments, declared, headers, _kind_line, numbers={3}, whole={4}, wraps=True, empty=empty)


def _kind_line(one: kinds.KindSummary) -> tuple[str, ...]:
    timeout = "" if one.timeout_ms is None else milliseconds(one.timeout_ms)
    fields = ", ".join(one.payload.get("properties", {})) if one.payload else one.about or ""
    return one.kind, one.queue, one.executor, str(one.max_attempts or ""), timeout, fields


def _say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)
