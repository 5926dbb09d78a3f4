CREATE FUNCTION job_has_rules() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM job_limit) OR EXISTS (SELECT FROM job_queue WHERE fair)
        OR EXISTS (SELECT FROM job_rule_change)
$$;

COMMENT ON FUNCTION job_has_rules IS 'Whether there is a limit or a fair queue, or jobs are still labelled by an old one.';
