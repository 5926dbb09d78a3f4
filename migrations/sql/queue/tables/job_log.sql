CREATE TABLE job_log (
    id       bigint GENERATED ALWAYS AS IDENTITY,
    job_id   bigint NOT NULL,
    attempt  integer NOT NULL,
    level    text NOT NULL DEFAULT 'INFO' CHECK (level IN ('DEBUG', 'INFO', 'WARNING', 'ERROR')),
    message  text NOT NULL CHECK (length(message) <= 4000),
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, id)  -- no foreign key: it would lock the busy row for every line; prune removes both
);

COMMENT ON TABLE job_log IS 'The log lines of processors, one a row.';
