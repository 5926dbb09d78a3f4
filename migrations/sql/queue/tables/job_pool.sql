CREATE TABLE job_pool (
    host          text NOT NULL COLLATE "C",
    name          text NOT NULL COLLATE "C" CHECK (length(name) BETWEEN 1 AND 200),
    queues        text[] NOT NULL,
    balance       text NOT NULL CHECK (balance IN ('off', 'simple', 'auto')),
    min_processes integer NOT NULL,
    max_processes integer NOT NULL,
    state         text NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'PAUSED', 'DRAINED')),
    state_reason  text,
    fixed_at      integer CHECK (fixed_at >= 0),
    wanted        integer NOT NULL DEFAULT 0,
    present       integer NOT NULL DEFAULT 0,
    leaving       integer NOT NULL DEFAULT 0,
    note          text,
    seen_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host, name),
    CONSTRAINT pool_bounds_are_sane CHECK (min_processes >= 0 AND max_processes >= greatest(1, min_processes))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

COMMENT ON TABLE job_pool IS 'The pools of every host: what was planned, what a person changed, and their state as of seen_at.';
COMMENT ON COLUMN job_pool.queues IS 'The queues that the pool works on; empty: all queues.';
COMMENT ON COLUMN job_pool.balance IS 'off (always max_processes), simple (by the number of waiting jobs) or auto.';
COMMENT ON COLUMN job_pool.state IS 'ACTIVE, PAUSED (its workers live and claim nothing) or DRAINED (its workers finish their jobs and leave).';
COMMENT ON COLUMN job_pool.state_reason IS 'Why somebody paused or drained it.';
COMMENT ON COLUMN job_pool.fixed_at IS 'The number of processes that a person fixed; null: balance decides.';
COMMENT ON COLUMN job_pool.wanted IS 'How many processes the pool should have now.';
COMMENT ON COLUMN job_pool.present IS 'How many processes it has, without those that are leaving.';
COMMENT ON COLUMN job_pool.leaving IS 'How many processes are finishing their last jobs.';
COMMENT ON COLUMN job_pool.note IS 'What keeps the pool from having its processes; null: nothing.';
