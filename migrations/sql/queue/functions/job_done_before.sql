-- The index is named by its own words, or a generic plan would not find it.
CREATE FUNCTION job_done_before(kind text, payload jsonb DEFAULT '{}', tenant text DEFAULT '', snap_id uuid DEFAULT NULL)
    RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT job.id FROM snap_processing_job AS job
     WHERE job.unique_key = job_spec_key(
               job_done_before.kind, job_done_before.tenant, job_done_before.payload, job_done_before.snap_id)
       AND job.status = 'COMPLETED'
       AND job.unique_key >= 'spec:' AND job.unique_key < 'spec;'
     ORDER BY job.id DESC LIMIT 1
$$;

COMMENT ON FUNCTION job_done_before IS 'The newest COMPLETED job that did this work, enqueued with unique_by = ''spec''; null: none that is still kept.';
