-- The jobs become due now, not at the time when they were added: otherwise they would come before jobs that have been
-- due for longer.
CREATE FUNCTION job_admit(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF ids = '{}' THEN
        RETURN;
    END IF;
    UPDATE snap_processing_job SET gate = 'open', next_retry_at = greatest(next_retry_at, now())
     WHERE id = ANY (ids);
    IF job_has_rules() THEN
        PERFORM job_label(ids);
    END IF;
    PERFORM pg_notify('snapapp_job', queue)
       FROM (SELECT DISTINCT queue FROM snap_processing_job WHERE id = ANY (ids)) AS touched;
END $$;

COMMENT ON FUNCTION job_admit IS 'Makes jobs claimable that have waited for their parents, and wakes the workers at commit.';
