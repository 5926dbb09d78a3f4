-- One NOTIFY for each queue and transaction, because each takes a database-wide lock at commit. PostgreSQL drops
-- repeats.
CREATE FUNCTION job_after_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF job_has_rules() THEN
        PERFORM job_label(ARRAY(SELECT id FROM inserted));
    END IF;
    PERFORM pg_notify('snapapp_job', queue) FROM (SELECT DISTINCT queue FROM inserted) AS touched;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION job_after_insert IS 'Labels new jobs that a limit or a fair queue covers, and wakes the workers at commit, once for each queue.';
