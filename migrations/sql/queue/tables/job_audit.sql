-- One row for each action of a person through /internal or from a terminal, written in the transaction of the action.
-- An action on many jobs in steps is one row, and each step adds to its count.
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

COMMENT ON TABLE job_audit IS 'The actions of people through /internal, /ops and commands: who did what, and when. Kept for 90 days at least.';
COMMENT ON COLUMN job_audit.who IS 'The name that the person gave, which is not checked; from a terminal, the system''s account. Empty: there is none.';
COMMENT ON COLUMN job_audit.door IS 'How the person got access: by the internal token, by being on this machine (if no token is set), or by a terminal (snapapp top, snapapp jobs and the like).';
COMMENT ON COLUMN job_audit.action IS 'The action: job.retry, jobs.retry, queue.pause, schedule.run and the like.';
COMMENT ON COLUMN job_audit.subject IS 'What the action was on: job 42, queue mail, schedule reports.nightly, or jobs for many.';
COMMENT ON COLUMN job_audit.jobs IS 'How many jobs the action changed.';
COMMENT ON COLUMN job_audit.detail IS 'Further facts: a reason, a filter.';
COMMENT ON COLUMN job_audit.run IS 'For an action in steps: the id by which the next step finds this row.';
COMMENT ON COLUMN job_audit.last_at IS 'For an action in steps: when the last step was.';
COMMENT ON COLUMN job_audit.request_id IS 'The request, for the logs.';
