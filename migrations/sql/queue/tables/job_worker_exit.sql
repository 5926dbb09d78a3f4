CREATE TABLE job_worker_exit (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker_id      text NOT NULL,
    name           text NOT NULL,
    pool           text,
    host           text NOT NULL,
    pid            integer NOT NULL,
    queues         text[] NOT NULL,
    reason         text NOT NULL,
    jobs_completed bigint NOT NULL,
    jobs_failed    bigint NOT NULL,
    started_at     timestamptz NOT NULL,
    exited_at      timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE job_worker_exit IS 'How each worker ended.';
COMMENT ON COLUMN job_worker_exit.pool IS 'The pool of the worker.';
