-- The job that holds a unique key. The conditions repeat the words of the three indexes, so that a generic plan uses
-- them.
CREATE FUNCTION job_holder(its_kind text, its_tenant text, its_key text, scope text) RETURNS bigint
    LANGUAGE sql STABLE AS $$
    SELECT job.id FROM snap_processing_job AS job
     WHERE job.kind = its_kind AND job.tenant = its_tenant AND job.unique_key = its_key
       AND (   (scope = 'waiting' AND job.unique_scope = 'waiting' AND job.status = 'PENDING' AND job.lease_seq = 0)
            OR (scope = 'live' AND job.unique_scope = 'live' AND job.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING'))
            OR (scope = 'ever' AND job.unique_scope = 'ever'))
$$;

COMMENT ON FUNCTION job_holder IS 'The job that holds a unique key in a scope; see enqueue_job.';
