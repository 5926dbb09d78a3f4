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

COMMENT ON TABLE job_master IS 'The supervisors (processes of `snapapp supervisor`), one for each host.';
COMMENT ON COLUMN job_master.host IS 'The name of its host, to which commands are addressed.';
COMMENT ON COLUMN job_master.id IS 'An id that is new at every start.';
COMMENT ON COLUMN job_master.machine IS 'Boot id and process namespace: within the same one it can be seen whether a pid is alive.';
COMMENT ON COLUMN job_master.pid_started IS 'When its process started, in the kernel''s ticks: it tells the process from another one with a reused pid.';
COMMENT ON COLUMN job_master.expires_at IS 'Without a heartbeat until this time, the supervisor counts as lost.';
