-- A key names the jobs that a limit counts: `queue:NAME`, `kind:NAME`, or `key:LANE`, where a job's lane is its
-- concurrency key, or else its tenant in a fair queue. The RUNNING rows themselves are counted, so no counter can
-- drift.
CREATE TABLE job_limit (
    key_pattern text PRIMARY KEY COLLATE "C",
    max_running integer CHECK (max_running >= 0),
    rate        double precision CHECK (rate > 0),
    burst       integer CHECK (burst > 0),

    CONSTRAINT key_pattern_says_of_what CHECK (key_pattern ~ '^(queue|kind|key):.' AND length(key_pattern) <= 600),
    CONSTRAINT limit_says_how_much CHECK (num_nonnulls(max_running, rate) > 0),
    -- an empty bucket is full again within 317 years: the calendar ends, and a claim computes that time
    CONSTRAINT rate_is_sane CHECK (rate <= 1000000 AND coalesce(burst, 1) <= rate * 1e10),
    CONSTRAINT burst_belongs_to_a_rate CHECK (burst IS NULL OR rate IS NOT NULL)
);

CREATE TRIGGER job_rules_changed AFTER INSERT OR UPDATE OR DELETE ON job_limit
    FOR EACH STATEMENT EXECUTE FUNCTION job_rules_changed();

COMMENT ON TABLE job_limit IS 'Limits: INSERT INTO job_limit VALUES (''key:camera:*'', 3). The limit applies separately to each queue, kind or key that fits the pattern; the most specific pattern applies.';
COMMENT ON COLUMN job_limit.key_pattern IS 'queue:NAME, kind:NAME, or key:KEY for a concurrency key (in a fair queue also for a tenant); a * at the end stands for anything.';
COMMENT ON COLUMN job_limit.max_running IS 'How many jobs may run at once, claimed ones included; 0: none, null: no limit.';
COMMENT ON COLUMN job_limit.rate IS 'How many attempts may start a second on average; null: no limit.';
COMMENT ON COLUMN job_limit.burst IS 'How many attempts may start at once after a rest; null: as many as the rate allows in a second, at least one.';
