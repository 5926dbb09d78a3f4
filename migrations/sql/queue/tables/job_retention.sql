-- Rules for how long finished jobs are kept, by kind and status. They go before the setting JOB_RETENTION_HOURS.
CREATE TABLE job_retention (
    kind   text NOT NULL COLLATE "C" DEFAULT '' CHECK (octet_length(kind) <= 200),
    status text NOT NULL COLLATE "C" CHECK (status IN ('COMPLETED', 'FAILED', 'CANCELLED')),
    keep   interval CHECK (keep BETWEEN interval '0' AND interval '365000 days'),  -- before 4713 BC there is no time
    newest integer CHECK (newest >= 0),

    PRIMARY KEY (kind, status)
);

COMMENT ON TABLE job_retention IS 'INSERT INTO job_retention VALUES (''mail.send'', ''COMPLETED'', ''2 days'', 1000): finished jobs that are older, or beyond that number, are deleted. The rule of a kind goes before that of every kind, which goes before the setting.';
COMMENT ON COLUMN job_retention.kind IS 'The kind that the rule is for; empty: every kind without a rule of its own.';
COMMENT ON COLUMN job_retention.status IS 'The status that the rule is for: COMPLETED, FAILED or CANCELLED.';
COMMENT ON COLUMN job_retention.keep IS 'Jobs that ended longer ago are deleted; null: jobs are not deleted for their age.';
COMMENT ON COLUMN job_retention.newest IS 'How many of the newest jobs of each kind are kept; null: jobs are not deleted for their number. Applied once an hour.';
