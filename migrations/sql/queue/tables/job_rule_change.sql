-- There is a row while jobs are still labelled by older rules. Whoever begins or ends a rule puts it there; the workers
-- look through the jobs, page by page, and take it away.
CREATE TABLE job_rule_change (
    is_only    boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    changed_by bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    looked_to  bigint NOT NULL DEFAULT 0,
    is_last    boolean NOT NULL DEFAULT false
);

COMMENT ON TABLE job_rule_change IS 'Limits or fair queues have changed, and waiting jobs are being looked through.';
COMMENT ON COLUMN job_rule_change.changed_by IS 'The transaction that changed them: one that began before it may still add a job that knows nothing of it.';
COMMENT ON COLUMN job_rule_change.looked_to IS 'Jobs up to this id have been looked at.';
COMMENT ON COLUMN job_rule_change.is_last IS 'This look began when no such transaction was left.';
