-- How long finished jobs stay, where the setting JOB_RETENTION_HOURS is not enough: by kind and how they ended.
CREATE TABLE job_retention (
    kind   text NOT NULL COLLATE "C" DEFAULT '' CHECK (octet_length(kind) <= 200),
    status text NOT NULL COLLATE "C" CHECK (status IN ('COMPLETED', 'FAILED', 'CANCELLED')),
    keep   interval CHECK (keep BETWEEN interval '0' AND interval '365000 days'),  -- before 4713 BC there is no time
    newest integer CHECK (newest >= 0),

    PRIMARY KEY (kind, status)
);

COMMENT ON TABLE job_retention IS 'INSERT INTO job_retention VALUES (''mail.send'', ''COMPLETED'', ''2 days'', 1000): finished jobs that are older, or more, are deleted. The rule of a kind goes before that of every kind, which goes before the setting.';
COMMENT ON COLUMN job_retention.kind IS 'Of which kind; empty: of every kind that has no rule of its own.';
COMMENT ON COLUMN job_retention.status IS 'How they ended: COMPLETED, FAILED or CANCELLED.';
COMMENT ON COLUMN job_retention.keep IS 'Deleted when they ended so long ago; null: their age is no reason.';
COMMENT ON COLUMN job_retention.newest IS 'Of each kind so many stay, the newest; null: their number is no reason. Looked after once an hour.';
