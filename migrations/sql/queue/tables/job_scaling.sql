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

COMMENT ON TABLE job_scaling IS 'Every decision of the autoscaler, with the numbers that it was made from.';
COMMENT ON COLUMN job_scaling.inputs IS 'The measured numbers: due jobs, arrivals and ends a second, durations, memory.';
