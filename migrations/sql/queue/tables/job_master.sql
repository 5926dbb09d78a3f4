CREATE TABLE job_master (
    host        text PRIMARY KEY COLLATE "C" CHECK (length(host) BETWEEN 1 AND 200),
    id          text NOT NULL COLLATE "C",
    machine     text NOT NULL,
    pid         integer NOT NULL,
    pid_started bigint NOT NULL,
    status      text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'STOPPING')),
    started_at  timestamptz NOT NULL DEFAULT now(),
    beat_at     timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

COMMENT ON TABLE job_master IS 'The supervisors: one a host; `snapapp supervisor` is such a process.';
COMMENT ON COLUMN job_master.host IS 'The name of its host, by which it is told things.';
COMMENT ON COLUMN job_master.id IS 'Fresh at every start.';
COMMENT ON COLUMN job_master.machine IS 'Boot id and process namespace: on the same one, a dead pid is known to be dead.';
COMMENT ON COLUMN job_master.pid_started IS 'When its process started, in the kernel''s ticks: a reused pid is not mistaken for it.';
COMMENT ON COLUMN job_master.expires_at IS 'Taken for lost after this, if no heartbeat comes.';
