-- One row for each attempt that ran in a process of its own, or for at least a second. Of quicker attempts only some
-- have a row, which stands for many: at 50,000 attempts a second, a row for each would cost more than the jobs.
CREATE TABLE job_cost (
    job_id     bigint NOT NULL,
    lease_seq  bigint NOT NULL,
    attempt    integer NOT NULL,
    kind       text NOT NULL COLLATE "C",
    outcome    text NOT NULL,
    started_at timestamptz NOT NULL,
    wait_ms    double precision,
    wall_ms    double precision NOT NULL,
    cpu_ms     double precision,
    peak_mb    double precision,
    stands_for integer NOT NULL DEFAULT 1 CHECK (stands_for > 0),
    PRIMARY KEY (job_id, lease_seq)  -- no foreign key: it would lock the busy row; prune removes both
);

CREATE INDEX job_cost_of_kind ON job_cost (kind, started_at);

COMMENT ON TABLE job_cost IS 'What attempts cost: SELECT * FROM job_cost WHERE job_id = 42. The view kind_costs has percentiles. Rows go with their jobs.';
COMMENT ON COLUMN job_cost.job_id IS 'The job.';
COMMENT ON COLUMN job_cost.lease_seq IS 'The lease of the attempt. Two rows may have the same attempt number (one was given back), but never the same lease.';
COMMENT ON COLUMN job_cost.attempt IS 'The number of the attempt, as its job counted it then.';
COMMENT ON COLUMN job_cost.kind IS 'The job''s kind.';
COMMENT ON COLUMN job_cost.outcome IS 'The status that the attempt led to. PENDING: it was handed back or snoozed; LEASE_LOST: its result was dropped.';
COMMENT ON COLUMN job_cost.started_at IS 'When it began to run.';
COMMENT ON COLUMN job_cost.wait_ms IS 'Milliseconds from when the attempt was due to when it began.';
COMMENT ON COLUMN job_cost.wall_ms IS 'Milliseconds that the attempt ran, by the clock on the wall.';
COMMENT ON COLUMN job_cost.cpu_ms IS 'Milliseconds of processor time: of its thread, or of its process or program with the processes that it started and waited for. Null: not known, as for async.';
COMMENT ON COLUMN job_cost.peak_mb IS 'The most memory that its process or program had resident; null for threads and async, which share their memory.';
COMMENT ON COLUMN job_cost.stands_for IS 'How many quick attempts this row stands for.';
