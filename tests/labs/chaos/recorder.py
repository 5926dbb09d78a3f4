"""What is written down: lines by every process, and rows by the database, in the transaction of each transition."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from snapapp.jobs.rows.database import Row

# Who acts is told by every connection of a worker (PGOPTIONS), so the database can say it of each write.
_SCHEMA = """
CREATE TABLE chaos_event (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id       bigint NOT NULL,
    actor        text,
    was          text,
    becomes      text NOT NULL,
    seq_old      bigint,
    seq_new      bigint NOT NULL,
    attempt_old  integer,
    attempt_new  integer NOT NULL,
    holder_old   text,
    holder_new   text,
    losses_old   integer,
    started_old  boolean,
    beaten_old   timestamptz,
    expires_old  timestamptz,
    error        text,
    txid         bigint NOT NULL DEFAULT txid_current(),
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    server_since timestamptz NOT NULL DEFAULT pg_postmaster_start_time()
);

-- No unique constraint: a double must be able to show itself.
CREATE TABLE chaos_effect (job_id bigint NOT NULL, lease_seq bigint NOT NULL, worker text, kind text NOT NULL);
CREATE TABLE chaos_burial (job_id bigint NOT NULL, lease_seq bigint NOT NULL, worker text);

CREATE FUNCTION chaos_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO chaos_event (job_id, actor, becomes, seq_new, attempt_new)
        VALUES (NEW.id, current_setting('chaos.worker', true), NEW.status, NEW.lease_seq, NEW.attempt_count);
    ELSE
        INSERT INTO chaos_event (
            job_id, actor, was, becomes, seq_old, seq_new, attempt_old, attempt_new, holder_old, holder_new,
            losses_old, started_old, beaten_old, expires_old, error)
        VALUES (
            NEW.id, current_setting('chaos.worker', true), OLD.status, NEW.status, OLD.lease_seq, NEW.lease_seq,
            OLD.attempt_count, NEW.attempt_count, OLD.claimed_by, NEW.claimed_by,
            OLD.losses, OLD.started_at IS NOT NULL, OLD.locked_at, OLD.lock_expires_at, NEW.last_error);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER chaos_inserted AFTER INSERT ON snap_processing_job
    FOR EACH ROW EXECUTE FUNCTION chaos_record();
-- Beats are written down only where they are not the holder's: those must not exist.
CREATE TRIGGER chaos_changed AFTER UPDATE ON snap_processing_job
    FOR EACH ROW WHEN (OLD.status <> NEW.status OR OLD.lease_seq <> NEW.lease_seq
        OR (OLD.lock_expires_at <> NEW.lock_expires_at
            AND OLD.claimed_by IS DISTINCT FROM current_setting('chaos.worker', true)))
    EXECUTE FUNCTION chaos_record();
"""


def install(db: psycopg.Connection[Row]) -> None:
    """The lab's own tables and triggers; the product's migrations know nothing of them."""
    db.execute(_SCHEMA)


class Recorder:
    """Appends lines to a file of its own process. Each line is one write, so a kill leaves it whole or out."""

    def __init__(self, folder: Path, name: str) -> None:
        self.worker: str | None = None  # its id, once it has one
        self._pid = os.getpid()
        path = folder / f"history-{name}-{self._pid}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, **facts: Any) -> None:
        who = {"what": what, "at": time.time(), "monotonic": time.monotonic(), "pid": self._pid, "worker": self.worker}
        os.write(self._file, json.dumps(who | facts, default=str).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of every process, in the order of the wall clock, which all of them share."""
    found = [line for path in folder.glob("history-*.jsonl") for line in _lines_of(path)]
    return sorted(found, key=lambda line: float(line["at"]))


def _lines_of(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(text)
