-- This table has a row while jobs are still labelled by older rules. A change of the rules adds it; the workers look
-- through the jobs page by page, and then delete it.
CREATE TABLE job_rule_change (
    is_only    boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    changed_by bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    looked_to  bigint NOT NULL DEFAULT -1,
    is_last    boolean NOT NULL DEFAULT false
);

COMMENT ON TABLE job_rule_change IS 'A row says that limits or fair queues have changed, and that workers are looking through the waiting jobs.';
COMMENT ON COLUMN job_rule_change.changed_by IS 'The newest transaction that may have begun before the change was committed: it and older ones may still add jobs that were labelled without the change.';
COMMENT ON COLUMN job_rule_change.looked_to IS 'The jobs up to this id have been labelled anew; -1: nobody has begun to.';
COMMENT ON COLUMN job_rule_change.is_last IS 'True: this pass began when no such older transaction was left.';
