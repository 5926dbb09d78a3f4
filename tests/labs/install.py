"""ops/linode/install.sh on a blank Debian or Ubuntu in a folder: twice, an upgrade, releases that are bad in five ways,
a backup, a wipe, a restore and a drill.

As root, with debootstrap and a way to the system's packages and ours; it takes a quarter of an hour the first time, and
what was downloaded is kept in --kept. For Ubuntu on a Debian its keyring must be named: --keyring. The root has a
network of its own without a way out. systemd does not run in a chroot: a stand-in for systemctl really starts and stops
what the units say, as the user that they say, but without their sandbox; that is what `systemd-analyze` is for
(tests/ops). Exit code 0: every fact below was so."""

import argparse
import fcntl
import hashlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import ROOT

# For what debootstrap and the installer want; the first group is what every box of a provider has.
PACKAGES = ["ca-certificates", "systemd-sysv", "sudo", "adduser", "iproute2", "locales"]
INSTALLED = ["postgresql", "python3", "python3-venv", "make", "curl", "openssl", "caddy", "nftables"]
INSTALLED += ["unattended-upgrades", "age"]

SYSTEMCTL = r'''#!/usr/bin/python3
"""Starts and stops what the units say, without their sandbox."""
import fnmatch, os, pathlib, pwd, re, shlex, signal, subprocess, sys, time

RUN, UNITS = pathlib.Path("/run/lab"), pathlib.Path("/etc/systemd/system")
CLUSTER = ["pg_ctlcluster", "--skip-systemctl-redirect", os.listdir("/etc/postgresql")[0], "main"]
RUN.mkdir(exist_ok=True)
words = [word for word in sys.argv[1:] if not word.startswith("-")]
verb, names = words[0], [word.removesuffix(".service") for word in words[1:]]
with (RUN / "asked").open("a") as file:
    print(*words, file=file)


def pid(name):
    try:
        number = int((RUN / f"{name}.pid").read_text())
        return number if pathlib.Path(f"/proc/{number}/stat").read_text().split(")")[1].split()[0] != "Z" else None
    except (OSError, ValueError):
        return None


def settings():
    lines = pathlib.Path("/etc/snapapp/snapapp.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def start(name):
    if name.startswith("postgresql@"):
        subprocess.run([*CLUSTER, "start"])
    if not name.startswith("snapapp-") or name.endswith(".timer") or pid(name):
        return
    argv = shlex.split(re.search("^ExecStart=(.*)$", (UNITS / f"{name}.service").read_text(), re.M)[1])
    user = pwd.getpwnam("snapapp")
    for folder in ("/run/snapapp", "/var/lib/snapapp"):
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, user.pw_uid, user.pw_gid)
    with (RUN / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            argv, cwd="/opt/snapapp/current", stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | settings() | {"TMPDIR": "/run/snapapp"}, user=user.pw_uid, group=user.pw_gid,
            extra_groups=[])
    (RUN / f"{name}.pid").write_text(str(process.pid))
    if "Type=oneshot" in (UNITS / f"{name}.service").read_text() and process.wait():
        sys.exit(f"{name} failed")


def stop(name):
    if name.startswith("postgresql@"):
        subprocess.run([*CLUSTER, "stop"])
    if number := pid(name):
        os.kill(number, signal.SIGTERM)
        while pid(name):
            time.sleep(0.1)
    (RUN / f"{name}.pid").unlink(missing_ok=True)


started = [path.stem for path in RUN.glob("*.pid") if pid(path.stem)]
match verb:
    case "start" | "restart" | "try-restart" | "stop" | "try-reload-or-restart" | "reload-or-restart":
        for pattern in names:
            is_try = verb.startswith("try") or verb == "stop"
            for name in fnmatch.filter(started, pattern) if is_try or "*" in pattern else [pattern]:
                if verb != "start":
                    stop(name)
                if verb != "stop":
                    start(name)
    case "enable":
        for name in names:
            (RUN / f"{name}.enabled").touch()
            if "--now" in sys.argv:
                start(name)
    case "is-enabled":
        sys.exit(not (RUN / f"{names[0]}.enabled").exists())
    case "is-active":
        sys.exit(not pid(names[0]))
    case "is-failed":  # systemd would have given up after ten starts; here, after the first
        sys.exit(not ((RUN / f"{names[0]}.pid").exists() and not pid(names[0])))
    case "list-units":
        for name in started:
            print(f"{name}.service loaded active running")
'''

JOURNALCTL = """#!/bin/sh
tail -n 20 /run/lab/snapapp-api.log
"""


class Box:
    """The root, and what is done in it."""

    def __init__(self, root: Path, holder: int) -> None:
        self.root, self._holder = root, holder

    def run(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "--mount", "--pid", "--net", "--target", str(self._holder), "chroot", str(self.root)]
        clean = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/lab/wheels", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [*enter, *argv], env=clean | wheels | environment, capture_output=True, text=True, check=False
        )

    def sh(self, line: str) -> str:
        done = self.run("bash", "-c", line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def install(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = self.run("bash", "/lab/source/ops/linode/install.sh", *arguments, **environment)
        print("".join(f"    | {line}\n" for line in (done.stdout + done.stderr).splitlines()), end="")
        return done

    def ask(self, statement: str, database: str = "snapapp") -> str:
        return self.sh(f'cd / && sudo -u postgres psql -qtA {database} -c "{statement}"')

    def release(self) -> str:
        return self.sh("basename $(readlink -f /opt/snapapp/current)")

    def is_up(self) -> bool:
        return self.run("curl", "-fsS", "http://127.0.0.1:8000/actuator/health").returncode == 0

    def state(self) -> str:
        """Whatever an installation may change, but for what runs meanwhile."""
        found = "find /etc /opt/snapapp/current/ /var/backups /usr/local/bin ! -name '*.pyc'"
        files = self.sh(f"{found} -type f -print0 | sort -z | xargs -0 sha256sum")
        modes = self.sh(f"{found} -printf '%p %m %u %l\\n' | sort")
        roles = self.sh("cd / && sudo -u postgres pg_dumpall --roles-only --no-role-passwords | grep -v restrict")
        return hashlib.sha256("".join([files, modes, roles]).encode()).hexdigest()

    def changes(self, path: str, old: str, new: str) -> None:
        file = self.root / "lab/source" / path
        text = file.read_text()
        assert old in text, f"{path} has no {old!r} that could be changed"
        file.write_text(text.replace(old, new, 1))


# --- the facts ----------------------------------------------------------------------------------------------------


def a_blank_machine_becomes_a_box(box: Box) -> None:
    done = box.install("box.example.com", LC_ALL="xx_XX.ISO-8859-1")  # of whoever logged in, not installed here
    assert done.returncode == 0
    assert "The token of default" in done.stdout
    assert box.is_up()
    assert "box.example.com {" in box.sh("cat /etc/caddy/Caddyfile")
    box.sh("nft --check --file /etc/nftables.conf")
    assert box.sh("stat -c '%a %U %G' /etc/snapapp/snapapp.env") == "640 root snapapp"
    assert box.ask("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'snapapp%'") == "4"


def the_second_time_changes_nothing(box: Box) -> None:
    before, began = box.state(), box.sh("cat /run/lab/snapapp-api.pid")
    done = box.install()
    assert (done.returncode, "Nothing was to do" in done.stdout) == (0, True)
    assert (box.state(), box.sh("cat /run/lab/snapapp-api.pid")) == (before, began)


def another_domain_is_followed(box: Box) -> None:
    began = box.sh("cat /run/lab/snapapp-api.pid")
    assert box.install("Other.example.com").returncode == 0
    assert box.sh("cat /etc/snapapp/domain") == "other.example.com"
    assert "other.example.com {" in box.sh("cat /etc/caddy/Caddyfile")
    box.sh("grep -x SNAPAPP_PUBLIC_BASE_URL=https://other.example.com /etc/snapapp/snapapp.env")
    assert box.sh("cat /run/lab/snapapp-api.pid") != began, "the service goes on with the old address"
    assert box.is_up()


def what_was_cut_off_before_its_token_is_finished(box: Box) -> None:
    """Killed between the schema and the token: the API refuses to start on the one that everybody knows."""
    box.ask("UPDATE tenant SET token_hash = sha256('dev-default-token') WHERE code = 'default'")
    box.sh("systemctl restart snapapp-api; while systemctl is-active snapapp-api; do sleep 1; done")
    done = box.install()
    assert (done.returncode, "The token of default" in done.stdout) == (0, True)
    assert box.is_up()


def a_full_disk_leaves_files_as_they_were(box: Box) -> None:
    box.sh("mkdir -p /lab/small && mount -t tmpfs -o size=64k tmpfs /lab/small && echo mine >/lab/small/conf")
    box.sh("head -c 100k /dev/zero >/lab/large")
    done = box.run("bash", "-c", ". /lab/source/ops/linode/install.sh; if place /lab/large /lab/small/conf; then :; fi")
    assert (done.returncode, "cannot be written" in done.stderr) == (1, True), done
    assert box.sh("ls /lab/small; cat /lab/small/conf") == "conf\nmine"


def a_new_release_comes_up(box: Box) -> None:
    box.sh('cd / && sudo -u snapapp snapapp jobs enqueue demo.hello \'{"name": "Ana"}\'')
    before = box.release()
    box.changes("snapapp/__init__.py", '"""', '"""Newer. ')
    assert box.install().returncode == 0
    assert box.release() != before
    assert box.is_up()
    assert box.ask("SELECT count(*) FROM snap_processing_job WHERE kind = 'demo.hello'") == "1"


def a_release_that_cannot_be_built_changes_nothing(box: Box) -> None:
    refused(box, "requirements.lock", "alembic==", "alembic==999.", "cannot be built")


def a_release_that_does_not_come_up_is_taken_back(box: Box) -> None:
    refused(box, *BROKEN, "was taken back")


def a_release_that_hangs_is_taken_back(box: Box) -> None:
    serve = "    monolith, store = Monolith(settings)"
    hangs = f"    import time; time.sleep(600)\n{serve}"
    began = time.monotonic()
    refused(box, "snapapp/cli/processes/service.py", serve, hangs, "was taken back", HEALTHY_WITHIN="10")
    assert time.monotonic() - began < 240


BROKEN = ("snapapp/cli/processes/service.py", '"""', 'raise SystemExit("broken")\n"""')

MIGRATION = '''"""Another table."""
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade() -> None:
    op.execute("CREATE TABLE ox (id int)")
    {then}
'''


def a_bad_release_with_another_schema_is_taken_back_with_it(box: Box) -> None:
    add_migration(box, "pass")
    jobs = box.ask("SELECT count(*), max(id) FROM snap_processing_job WHERE kind = 'demo.hello'")
    refused(box, *BROKEN, "was taken back")
    assert box.ask("SELECT to_regclass('ox') IS NULL") == "t"
    assert box.ask("SELECT count(*) FROM pg_database WHERE datname LIKE 'snapapp_2%'") == "1"
    assert box.ask("SELECT count(*), max(id) FROM snap_processing_job WHERE kind = 'demo.hello'") == jobs


def a_migration_that_fails_is_taken_back(box: Box) -> None:
    add_migration(box, "op.execute('SELECT 1/0')")
    refused(box, "README.md", "#", "# ", "was taken back")
    assert box.ask("SELECT to_regclass('ox') IS NULL") == "t"


def add_migration(box: Box, then: str) -> None:
    folder = box.root / "lab/source/migrations/versions/product"
    (folder / "0002_ox.py").write_text(MIGRATION.replace("{then}", then))


def refused(box: Box, path: str, old: str, new: str, words: str, **environment: str) -> None:
    before = box.release()
    box.changes(path, old, new)
    done = box.install(**environment)
    assert (done.returncode, words in done.stderr) == (1, True), done
    assert box.release() == before
    assert box.is_up()
    fresh_source(box.root)
    box.changes("snapapp/__init__.py", '"""', '"""Newer. ')


def a_backup_survives_the_loss_of_everything(box: Box) -> None:
    (box.root / "var/lib/snapapp/media/snaps/a/1").mkdir(parents=True)
    (box.root / "var/lib/snapapp/media/snaps/a/1/frame.jpg").write_bytes(b"a frame")
    box.sh("chown -R snapapp:snapapp /var/lib/snapapp/media")
    box.sh("systemctl start snapapp-backup && systemctl start snapapp-drill")
    rows = box.ask("SELECT count(*) FROM snap_processing_job")
    box.sh("systemctl stop snapapp-api; rm -r /var/lib/snapapp/media; cd / && sudo -u postgres dropdb --force snapapp")
    box.sh("cd / && sudo -u postgres createdb --owner snapapp --encoding UTF8 --template template0 snapapp")
    print("    |", box.sh("cd / && sudo -u snapapp snapapp restore"))
    box.sh("systemctl start snapapp-migrate && systemctl start snapapp-api")
    assert box.ask("SELECT count(*) FROM snap_processing_job") == rows
    assert (box.root / "var/lib/snapapp/media/snaps/a/1/frame.jpg").read_bytes() == b"a frame"


def without_systemd_it_says_so(box: Box) -> None:
    box.sh("rmdir /run/systemd/system")
    assert box.install().returncode == 0
    before = box.state()
    done = box.install()
    assert (done.returncode, "systemd is not running here" in done.stdout) == (0, True)
    assert box.state() == before


FACTS: list[Callable[[Box], None]] = [
    a_blank_machine_becomes_a_box,
    the_second_time_changes_nothing,
    another_domain_is_followed,
    what_was_cut_off_before_its_token_is_finished,
    a_full_disk_leaves_files_as_they_were,
    a_new_release_comes_up,
    a_release_that_cannot_be_built_changes_nothing,
    a_release_that_does_not_come_up_is_taken_back,
    a_release_that_hangs_is_taken_back,
    a_bad_release_with_another_schema_is_taken_back_with_it,
    a_migration_that_fails_is_taken_back,
    a_backup_survives_the_loss_of_everything,
    without_systemd_it_says_so,
]


# --- the root -----------------------------------------------------------------------------------------------------


UBUNTU = "http://archive.ubuntu.com/ubuntu"
OF_UBUNTU = "/usr/share/debootstrap/scripts/gutsy"  # what debootstrap's scripts for newer ones are links to


def blank(kept: Path, suite: str, mirror: str, keyring: str) -> Path:
    """Made once."""
    root = kept / suite
    if not (root / "lab-is-ready").exists():
        print(f"Making {root}, once", flush=True)
        options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
        where = [mirror]
        if suite == "noble":
            options.append("--components=main,universe")
            where = [mirror or UBUNTU, OF_UBUNTU]
        if keyring:
            options.append(f"--keyring={keyring}")
        subprocess.run(["debootstrap", *options, suite, root, *where], check=True)
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # nothing is started by its package
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *INSTALLED]
        subprocess.run(["chroot", root, "apt-get", "update", "-qq"], check=True)
        subprocess.run(["chroot", root, *install], check=True, stdout=subprocess.DEVNULL)
        (root / "lab-is-ready").touch()
    return root


def wheels_for(base: Path) -> Path:
    """What the lock pins, for the Python that this system has."""
    wheels = base.with_name(f"{base.name}-wheels")
    wheels.mkdir(exist_ok=True)
    python = (base / "usr/bin/python3").readlink().name.removeprefix("python")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    fetch += ["--python-version", python, "-d", str(wheels)]
    for lock in ("requirements.lock", "requirements-pip.lock"):
        fetch += ["-r", str(ROOT / lock)]
    subprocess.run(fetch, check=True)
    return wheels


def fresh_source(root: Path) -> None:
    shutil.rmtree(root / "lab/source", ignore_errors=True)
    shutil.copytree(root / "lab/as-it-was", root / "lab/source")


def copy_source(root: Path) -> None:
    """Once: whoever goes on working meanwhile does not make another release."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (root / "lab/as-it-was" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / "lab/as-it-was" / name)


@contextmanager
def box_of(base: Path, wheels: Path, root: Path) -> Iterator[Box]:
    subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
    copy_source(root)
    fresh_source(root)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    shutil.copytree(wheels, root / "lab/wheels")
    for name, text in {"systemctl": SYSTEMCTL, "journalctl": JOURNALCTL}.items():
        (root / "usr/local/bin" / name).write_text(text)
        (root / "usr/local/bin" / name).chmod(0o755)
    own = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c"]
    mounts = f"""
        mount --make-rprivate / && mount --bind {root} {root} && mount -t proc proc {root}/proc &&
        mount --rbind /dev {root}/dev && mount -t tmpfs tmpfs {root}/run && mount -t tmpfs tmpfs {root}/dev/shm &&
        mount -t proc proc /proc && mkdir -p {root}/run/systemd/system {root}/run/lock && chmod 1777 {root}/run/lock &&
        mkdir -p {root}/run/postgresql && chroot {root} chown postgres {"/run/postgresql"} && ip link set lo up &&
        echo ready && exec sleep infinity"""
    holder = subprocess.Popen([*own, mounts], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "ready\n"
        inner = subprocess.run(["pgrep", "-P", str(holder.pid)], capture_output=True, text=True, check=True).stdout
        yield Box(root, int(inner))
    finally:
        holder.kill()
        holder.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    suites = ("bookworm", "trixie", "noble")
    parser.add_argument("--suite", default="bookworm", choices=suites, help="Debian 12, Debian 13 or Ubuntu 24.04")
    parser.add_argument("--mirror", default="", help="for debootstrap (default: its own)")
    parser.add_argument("--keyring", default="", help="for debootstrap (default: its own)")
    parser.add_argument("--kept", type=Path, default=Path("/var/tmp/snapapp-install-lab"), help="where downloads stay")
    parser.add_argument("--only", default="", help="facts with these words in their name, after the first")
    arguments = parser.parse_args()
    arguments.kept.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was begun in the root is ended
    turn = (arguments.kept / "lock").open("w")
    fcntl.flock(turn, fcntl.LOCK_EX)
    base = blank(arguments.kept, arguments.suite, arguments.mirror, arguments.keyring)
    root = arguments.kept / "box"
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
    wrong = 0
    with box_of(base, wheels_for(base), root) as box:
        for fact in FACTS:
            if fact is not FACTS[0] and arguments.only not in fact.__name__:
                continue
            began = time.monotonic()
            print(fact.__name__.replace("_", " "), flush=True)
            try:
                fact(box)
            except AssertionError as error:
                wrong += 1
                print(f"  WRONG: {error}", flush=True)
            print(f"  {time.monotonic() - began:.0f} s", flush=True)
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
    print("Every fact was so." if not wrong else f"{wrong} of {len(FACTS)} facts were not so.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
