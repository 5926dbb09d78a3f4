"""ops/container: the recipe of the image, the manifests and KEDA's query, held against the application."""

import re
from typing import Any

import pytest
import yaml

from snapapp.__main__ import main
from snapapp.app import create_app
from snapapp.settings.loading import load
from snapapp.settings.table import TABLE, Settings
from tests import ROOT
from tests.factory import Db, make_jobs, scalar

FOLDER = ROOT / "ops" / "container"
RECIPE = (FOLDER / "Containerfile").read_text()
README = (FOLDER / "README.md").read_text()
MANIFESTS: list[dict[str, Any]] = [
    found for name in ("snapapp.yaml", "keda.yaml") for found in yaml.safe_load_all((FOLDER / name).read_text())
]
NAMES = {entry.name for entry in TABLE.values()}
SECRETS = dict(re.findall(r"--from-literal=(SNAPAPP_\w+)=(\S+)", README))
PARTS = ["snapapp-migrate", "snapapp-api", "snapapp-worker"]


def test_memory_is_given_back_as_in_the_systemd_units() -> None:
    assert "MALLOC_ARENA_MAX=2 \\\n" in RECIPE[RECIPE.index("\nENV ") :]


def manifest(kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(name: str) -> dict[str, Any]:
    template: dict[str, Any] = manifest("Job" if name.endswith("migrate") else "Deployment", name)["spec"]["template"]
    return template


def container(name: str) -> dict[str, Any]:
    [found] = pod(name)["spec"]["containers"]
    return dict(found)


def settings() -> Settings:
    """As a pod reads them: the image's, over them those of the ConfigMap and of the Secret."""
    of_image = dict(re.findall(r"(SNAPAPP_\w+)=(\S+)", RECIPE[RECIPE.index("\nENV ") :]))
    secrets = dict.fromkeys(SECRETS, "0123456789abcdef" * 2) | {"SNAPAPP_DATABASE_URL": "postgresql://db/snapapp"}
    return load(of_image | manifest("ConfigMap", "snapapp")["data"] | secrets)


def mebibytes(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()  # type: ignore[union-attr]  # else it should fail
    return int(number) * (1024 if unit == "Gi" else 1)


# --- the settings ---------------------------------------------------------------------------------------------------


def test_every_setting_is_known_and_the_application_takes_all_of_them_together() -> None:
    assert settings().warnings == ()
    assert set(manifest("ConfigMap", "snapapp")["data"]) | set(SECRETS) <= NAMES


def test_no_secret_stands_in_a_manifest_and_every_pod_refers_to_them() -> None:
    assert not set(manifest("ConfigMap", "snapapp")["data"]) & {each.name for each in TABLE.values() if each.secret}
    for name in PARTS:
        assert container(name)["envFrom"] == [
            {"configMapRef": {"name": "snapapp"}},
            {"secretRef": {"name": "snapapp"}},
        ]
    assert "kubectl create secret generic snapapp " in README


# --- the pods -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARTS)
def test_a_pod_has_no_rights_and_runs_as_the_user_of_the_image(name: str) -> None:
    [uid, gid] = re.search(r"^USER (\d+):(\d+)$", RECIPE, re.MULTILINE).groups()  # type: ignore[union-attr]
    who = pod(name)["spec"]["securityContext"]
    assert (who["runAsNonRoot"], who["runAsUser"], who["runAsGroup"], who["fsGroup"]) == (
        True,
        int(uid),
        int(gid),
        int(gid),
    )
    assert f"--uid {uid} " in RECIPE
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert who["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(name)["spec"]["automountServiceAccountToken"] is False
    assert container(name)["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", PARTS)
def test_a_pod_runs_a_command_that_there_is_and_may_write_where_it_must(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*container(name)["args"], "--help"])
    assert (ended.value.code, "usage: snapapp" in capsys.readouterr().out) == (0, True)
    mounted = {each["mountPath"]: each["name"] for each in container(name)["volumeMounts"]}
    assert set(mounted) == {str(settings().data_dir), "/tmp"}
    given = {each["name"]: each["emptyDir"]["sizeLimit"] for each in pod(name)["spec"]["volumes"]}
    needed = settings().source_cache_mb + settings().upload_max_mb + settings().disk_free_min_mb
    assert mebibytes(given[mounted[str(settings().data_dir)]]) >= needed


def test_the_grace_of_a_pod_outlasts_the_drain() -> None:
    drain = settings().shutdown_grace.total_seconds() + 10
    assert pod("snapapp-worker")["spec"]["terminationGracePeriodSeconds"] >= drain
    [command, pause] = container("snapapp-api")["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod("snapapp-api")["spec"]["terminationGracePeriodSeconds"] >= drain + int(pause)
    assert "STOPSIGNAL SIGTERM" in RECIPE


def test_probes_and_the_service_ask_where_the_application_answers() -> None:
    [port] = container("snapapp-api")["ports"]
    assert (port["name"], port["containerPort"]) == ("http", settings().port)
    assert f"EXPOSE {settings().port}\n" in RECIPE
    assert settings().host == "0.0.0.0"
    probes = {
        kind: container("snapapp-api")[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    }
    assert {each["port"] for each in probes.values()} == {"http"}
    paths = {each["path"] for each in probes.values()} | set(re.findall(r"(/actuator[\w/]+)", RECIPE))
    assert paths <= set(create_app(load({})).openapi()["paths"])
    assert probes["readiness"]["path"].endswith("readiness")
    assert all(probes[kind]["path"].endswith("liveness") for kind in ("startup", "liveness"))
    service = manifest("Service", "snapapp")["spec"]
    assert service["selector"] == pod("snapapp-api")["metadata"]["labels"]
    assert [each["targetPort"] for each in service["ports"]] == ["http"]


def test_a_budget_covers_the_pods_it_is_named_for() -> None:
    for name in ("snapapp-api", "snapapp-worker"):
        labels = {"matchLabels": pod(name)["metadata"]["labels"]}
        assert manifest("PodDisruptionBudget", name)["spec"]["selector"] == labels
        assert manifest("Deployment", name)["spec"]["selector"] == labels
    assert manifest("Deployment", "snapapp-api")["spec"]["replicas"] > 1


# --- the image ------------------------------------------------------------------------------------------------------


def test_the_recipe_copies_what_there_is_and_names_no_index() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", RECIPE, re.MULTILINE)
    assert {"requirements.lock", "snapapp", "migrations"} <= set(" ".join(copied).split())
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
    assert "RUN make .venv/.ready\n" in RECIPE  # whose recipe takes each file by its hash
    assert "--require-hashes" in (ROOT / "Makefile").read_text()
    assert not re.search(r"https?://(?!127\.0\.0\.1)", RECIPE)


# --- KEDA -----------------------------------------------------------------------------------------------------------


def test_keda_counts_what_could_run_and_what_runs(db: Db) -> None:
    scaled = manifest("ScaledObject", "snapapp-worker")["spec"]
    [trigger] = scaled["triggers"]
    assert scaled["scaleTargetRef"]["name"] == "snapapp-worker"
    assert scaled["minReplicaCount"] == 1
    assert "replicas" not in manifest("Deployment", "snapapp-worker")["spec"], "it would undo what KEDA decides"
    assert int(trigger["metadata"]["targetQueryValue"]) == settings().worker_children
    query = trigger["metadata"]["query"]
    assert scalar(db, query) == 0
    make_jobs(db, 5, queue="media")
    make_jobs(db, 2, "RETRY_WAIT", next_retry_at=scalar(db, "SELECT now() - interval '1 s'"))
    make_jobs(db, 3, "RUNNING", queue="media")
    for status in ("COMPLETED", "FAILED", "CANCELLED"):
        make_jobs(db, 4, status)
    make_jobs(db, 7, next_retry_at=scalar(db, "SELECT now() + interval '1 h'"))
    assert scalar(db, query) == 10
    scalar(db, "SELECT pause_queue('media', 'a test')")
    assert scalar(db, query) == 5, "what a person has stopped asks for nobody; what runs still needs its workers"


def test_the_role_of_keda_reads_the_view_and_nothing_else(db: Db) -> None:
    [grants] = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)
    role, trust = "snapapp_backlog", manifest("TriggerAuthentication", "snapapp-backlog")["spec"]["secretTargetRef"]
    assert trust == [{"parameter": "connection", "name": "snapapp-backlog", "key": "connection"}]
    assert "secret generic snapapp-backlog \\\n  --from-literal=connection=" in README
    [trigger] = manifest("ScaledObject", "snapapp-worker")["spec"]["triggers"]
    make_jobs(db, 3)
    try:
        with db.transaction(force_rollback=True):
            for statement in grants.split(";\n"):
                db.execute(statement.encode())
            db.execute(f"SET LOCAL ROLE {role}".encode())
            assert scalar(db, trigger["metadata"]["query"]) == 3
            assert not scalar(db, "SELECT has_table_privilege('snap_processing_job', 'SELECT')")
    finally:
        db.rollback()
