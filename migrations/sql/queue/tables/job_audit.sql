-- One row for each thing that a person did through /internal or from a terminal, written in the transaction that did
-- it; what was done to many jobs in steps is one row, and each step counts on in it.
CREATE TABLE job_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    who        text NOT NULL,
    door       text NOT NULL,
    action     text NOT NULL,
    subject    text NOT NULL,
    jobs       integer NOT NULL,
    detail     jsonb NOT NULL DEFAULT '{}',
    run        uuid UNIQUE,
    last_at    timestamptz NOT NULL DEFAULT now(),
    request_id text,

    CONSTRAINT audit_is_short CHECK (octet_length(concat(who, door, action, subject, request_id)) <= 4000
        AND pg_column_size(detail) <= 32768)
);
CREATE INDEX job_audit_subject ON job_audit (subject, id);

COMMENT ON TABLE job_audit IS 'What people did through /internal, /ops and commands: who, what, when. Kept for 90 days at least.';
COMMENT ON COLUMN job_audit.who IS 'The name that they gave, which nobody checks; of a terminal the account of the system. Empty: there is none.';
COMMENT ON COLUMN job_audit.door IS 'How they got in: by the internal token, because they were on this machine where there is none, or by a terminal (snapapp top, snapapp jobs and their like).';
COMMENT ON COLUMN job_audit.action IS 'job.retry, jobs.retry, queue.pause, schedule.run and their like.';
COMMENT ON COLUMN job_audit.subject IS 'What it was done to: job 42, queue mail, schedule reports.nightly; of many jobs, which.';
COMMENT ON COLUMN job_audit.jobs IS 'How many jobs it changed.';
COMMENT ON COLUMN job_audit.detail IS 'What else was said: a reason, a filter.';
COMMENT ON COLUMN job_audit.run IS 'Of what goes in steps: by which the next step finds this row.';
COMMENT ON COLUMN job_audit.last_at IS 'Of what goes in steps: when the last one was.';
COMMENT ON COLUMN job_audit.request_id IS 'The request, for the logs.';
