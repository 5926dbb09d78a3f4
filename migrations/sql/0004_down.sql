DROP VIEW limit_overview;
DROP TRIGGER job_rules_changed ON job_limit;
DROP TRIGGER job_rules_changed ON job_queue;
DROP TRIGGER job_rules_begun ON job_queue;
DROP TRIGGER job_rules_ended ON job_queue;
DROP FUNCTION explain_limits_of_job, job_rules_changed, job_limit_room, job_limit_of;
DROP TABLE job_limit_key;
ALTER TABLE job_limit DROP CONSTRAINT key_pattern_says_of_what, DROP CONSTRAINT limit_says_how_much,
    DROP CONSTRAINT rate_is_sane, DROP CONSTRAINT burst_belongs_to_a_rate;
COMMENT ON TABLE job_limit IS 'Limits by key pattern: jobs running at once, and a rate.';
COMMENT ON COLUMN job_limit.key_pattern IS NULL;
COMMENT ON COLUMN job_limit.max_running IS NULL;
COMMENT ON COLUMN job_limit.rate IS NULL;
COMMENT ON COLUMN job_limit.burst IS NULL;
COMMENT ON COLUMN job_queue.fair IS NULL;
