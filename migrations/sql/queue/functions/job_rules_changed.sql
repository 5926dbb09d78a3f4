CREATE FUNCTION job_rules_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_rule_change DEFAULT VALUES
        ON CONFLICT (is_only) DO UPDATE SET changed_by = excluded.changed_by, looked_to = -1, is_last = false;
    PERFORM pg_notify('snapapp_job', '');
    RETURN NULL;
END $$;

COMMENT ON FUNCTION job_rules_changed IS 'When limits or fair queues change: makes the workers look through the waiting jobs.';
