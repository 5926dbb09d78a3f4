CREATE TABLE job_scaling (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    host    text NOT NULL COLLATE "C",
    pool    text NOT NULL COLLATE "C",
    balance text NOT NULL,
    present integer NOT NULL,
    wanted  integer NOT NULL,
    reason  text NOT NULL,
    inputs  jsonb NOT NULL
);

CREATE INDEX job_scaling_of_pool ON job_scaling (host, pool, id);

COMMENT ON TABLE job_scaling IS 'Every decision of the autoscaler, with what it was made from.';
COMMENT ON COLUMN job_scaling.inputs IS 'What was measured: what is due, how fast it comes and goes, how long it takes, memory.';
