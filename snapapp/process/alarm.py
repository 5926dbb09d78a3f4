"""Being told: what the doctor finds is sent to whoever is on call, each finding once, and again when it is over. An
address is pinged while all is well, so that its owner notices when a machine falls silent."""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from time import monotonic

import psycopg

from snapapp.jobs import doctor
from snapapp.jobs.doctor import Finding, Severity
from snapapp.jobs.doctor.finding import CHECK_FAILED
from snapapp.postgres.home import open_private, write_durably
from snapapp.process.alerts import Alert, Send, beat, in_line, rank, to_mail, to_webhook
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_ASK_AGAIN_AFTER = 10.0  # seconds; a database that restarts is not away
_SAID_AGAIN_AFTER = 3600.0  # seconds, of a receiver that stays away
_CALM_AFTER = 3600.0  # seconds as a notice
_ABOUT = (  # the numbers of a finding that say what it is about
    *("host", "pool", "command", "worker", "pid", "queue", "kind", "limit", "schedule"),
    *("table", "index", "slot", "gid", "invariant"),
)

Examine = Callable[[], Sequence[Finding]]
Found = Mapping[str, Finding]
Told = dict[str, dict[str, str]]  # channel -> finding -> its first line


class Alarm:
    """A thread of `snapapp serve`. Of the processes that share a data folder one sends: the one that has locked the
    file of what was told. The file outlasts a restart, so nothing is told twice."""

    def __init__(self, settings: Settings, examine: Examine) -> None:
        self._examine = examine
        self._every = settings.alert_interval.total_seconds()
        self._file = settings.data_dir / "alarm.json"
        self._heartbeat_url = settings.heartbeat_url
        self._channels: dict[str, Send] = {}
        if settings.alert_webhook_url:
            self._channels["webhook"] = to_webhook(settings.alert_webhook_url)
        if settings.alert_email:
            self._channels["email"] = to_mail(settings.alert_email, settings.alert_smtp_url)
        self._mild_since: dict[str, float] = {}  # what shows as a notice only; only `look` sets it
        self._said_again_at: dict[str, float] = {}  # when the log says next that a channel fails; only `_try` sets it
        self._unwritten: Told | None = None  # what the file lacks, because the disk was full; only `look` sets it
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alarm", daemon=True)

    @staticmethod
    def is_wanted(settings: Settings) -> bool:
        return bool(settings.alert_webhook_url or settings.alert_email or settings.heartbeat_url)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1)  # it may wait for a receiver

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with _alone(self._file.with_suffix(".lock")) as is_alone:
                    while is_alone and not self._stopping.is_set():
                        self.look()
                        self._stopping.wait(self._every)
            except Exception:  # noqa: BLE001 - a thread's outermost edge
                _log.exception("The alarm failed, and looks again in %g s.", self._every)

    def look(self) -> None:
        """Examines, tells what is new and what is over, and pings if there is nothing to do for anybody."""
        all_told = _read(self._file) if self._unwritten is None else self._unwritten
        shown, may_last = self._find()
        found = {key: each for key, each in shown.items() if doctor.needs_a_person([each])}
        calm = self._calm([key for key in shown if key not in found])
        for name, send in self._channels.items():
            told = all_told.setdefault(name, {})
            begun = {key: finding for key, finding in found.items() if _is_news(finding, told.get(key))}
            over = [key for key in told if key not in shown and not may_last(key)]
            alert = Alert([*begun.values()], [told[key] for key in over])
            if (begun or over) and self._try(name, partial(send, alert)):
                told |= {key: in_line(finding) for key, finding in begun.items()}
                for key in over:
                    del told[key]
                self._unwritten = all_told
            for key in calm & told.keys():
                if not told[key].startswith(Severity.NOTICE.value):
                    told[key] = in_line(shown[key])
                    self._unwritten = all_told
            if self._unwritten is not None:
                self._write_down(self._unwritten)
        if self._heartbeat_url and not found:
            self._try("heartbeat", partial(beat, self._heartbeat_url))

    def _calm(self, mild: Sequence[str]) -> set[str]:
        """Those that have been no more than notices for long: they are not over while they show, and are told again
        when they need somebody again. One that a number takes to and fro is told once."""
        now = monotonic()
        self._mild_since = {key: self._mild_since.get(key, now) for key in mild}
        return {key for key, since in self._mild_since.items() if now - since >= _CALM_AFTER}

    def _write_down(self, told: Told) -> None:
        """A full disk is itself told of: where the file cannot be written, this process remembers."""
        try:
            _write(self._file, told)
            self._unwritten = None
        except OSError as error:
            _log.warning("%s cannot be written: after a restart what was told is told once more: %s", self._file, error)

    def _try(self, name: str, send: Callable[[], None]) -> bool:
        """Logs what fails once an hour, and that it works again."""
        try:
            send()
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a letter that cannot be sent
            if monotonic() >= self._said_again_at.get(name, float("-inf")):
                # without the address, because it may hold a secret
                _log.warning("Nobody is told by %s, which is tried again: %s: %s", name, type(error).__name__, error)
                self._said_again_at[name] = monotonic() + _SAID_AGAIN_AFTER
            return False
        if self._said_again_at.pop(name, None) is not None:
            _log.warning("What there is to tell by %s arrives again.", name)
        return True

    def _find(self) -> tuple[Found, Callable[[str], bool]]:
        """What shows, and which of the others may last unseen: while the database is away, all of them; where a check
        failed, its own."""
        try:
            try:
                findings = self._examine()
            except psycopg.Error:
                self._stopping.wait(min(_ASK_AGAIN_AFTER, self._every))
                findings = self._examine()
        except psycopg.Error as error:
            away = Finding(
                id="DATABASE_AWAY",
                check="database",
                severity=Severity.CRITICAL,
                saw=f"The database does not answer: {' '.join(str(error).split())}",
                why="Requests and jobs wait for it.",
                do="Is PostgreSQL running, its disk full, are its connections used up?",
            )
            return {away.id: away}, lambda _: True
        failed = {each.check for each in findings if each.id == CHECK_FAILED}
        shown = {_key(each): each for each in sorted(findings, key=rank) if each.severity is not Severity.OK}
        return shown, lambda key: key.split()[0] in failed


def _key(finding: Finding) -> str:
    """Which finding it is, however its numbers change from look to look: the check, and what it is about."""
    about = [str(finding.numbers[name]) for name in _ABOUT if name in finding.numbers]
    return " ".join([finding.check, finding.id, *about])


def _is_news(finding: Finding, told: str | None) -> bool:
    """Was it never told, or was it calm meanwhile, or a warning only and is critical now?"""
    if told is None or told.startswith(Severity.NOTICE.value):
        return True
    return finding.severity is Severity.CRITICAL and not told.startswith(Severity.CRITICAL.value)


# --- what was told ----------------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether no other process has this lock. It ends with the process, however that ends. If root serves once, the
    files are the folder's owner's all the same, who would tell nobody otherwise."""
    file = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def _read(path: Path) -> Told:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {name: {**each} for name, each in told.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError):
        _log.warning("%s cannot be read: what was told before is told once more.", path)
        return {}


def _write(path: Path, told: Told) -> None:
    new = path.with_suffix(".new")
    write_durably(new, json.dumps(told))
    new.replace(path)
