-- Due from now on, not since it was added: what began to wait behind others must not come before them.
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

COMMENT ON FUNCTION job_admit IS 'Lets jobs in that have waited for their parents, and wakes the workers at commit.';
