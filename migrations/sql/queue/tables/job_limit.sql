-- A key names what is limited: `queue:NAME`, `kind:NAME`, or `key:LANE`, where a job's lane is its concurrency key, else
-- its tenant in a fair queue. Running rows are the only counter, so nothing leaks.
CREATE TABLE job_limit (
    key_pattern text PRIMARY KEY COLLATE "C",
    max_running integer CHECK (max_running >= 0),
    rate        double precision CHECK (rate > 0),
    burst       integer CHECK (burst > 0),

    CONSTRAINT key_pattern_says_of_what CHECK (key_pattern ~ '^(queue|kind|key):.' AND length(key_pattern) <= 600),
    CONSTRAINT limit_says_how_much CHECK (num_nonnulls(max_running, rate) > 0),
    CONSTRAINT rate_is_sane CHECK (rate <= 1000000),
    CONSTRAINT burst_belongs_to_a_rate CHECK (burst IS NULL OR rate IS NOT NULL)
);

CREATE TRIGGER job_rules_changed AFTER INSERT OR UPDATE OR DELETE ON job_limit
    FOR EACH STATEMENT EXECUTE FUNCTION job_rules_changed();

COMMENT ON TABLE job_limit IS 'Limits: INSERT INTO job_limit VALUES (''key:camera:*'', 3). Each queue, kind and key that fits the pattern has the limit for itself; the most specific pattern rules.';
COMMENT ON COLUMN job_limit.key_pattern IS 'queue:NAME, kind:NAME, or key:KEY for a concurrency key (in a fair queue also for a tenant); a * at the end stands for anything.';
COMMENT ON COLUMN job_limit.max_running IS 'So many run at once, claimed ones included; 0 stops it, null does not limit it.';
COMMENT ON COLUMN job_limit.rate IS 'So many attempts start a second on average; null does not limit it.';
COMMENT ON COLUMN job_limit.burst IS 'So many may start at once after a rest; null: as many as the rate allows in a second, at least one.';
