-- The condition repeats the index's own words; otherwise a generic plan would not use the index.
CREATE FUNCTION job_done_before(kind text, payload jsonb DEFAULT '{}', tenant text DEFAULT '', snap_id uuid DEFAULT NULL)
    RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT job.id FROM snap_processing_job AS job
     WHERE job.unique_key = job_spec_key(
               job_done_before.kind, job_done_before.tenant, job_done_before.payload, job_done_before.snap_id)
       AND job.status = 'COMPLETED'
       AND job.unique_key >= 'spec:' AND job.unique_key < 'spec;'
     ORDER BY job.id DESC LIMIT 1
$$;

COMMENT ON FUNCTION job_done_before IS 'The newest kept job with unique_by = ''spec'' that COMPLETED the same work; null: there is none.';
