CREATE FUNCTION explain_parents_of_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    told record;
    seen record;
BEGIN
    SELECT * INTO told FROM job_parent_counts(job.id);
    IF told.expected = 0 THEN
        RETURN;
    END IF;
    RETURN NEXT format('%s: %s completed, %s failed or cancelled, %s not over.',
        CASE WHEN job.gate = 'after' AND job.status = 'PENDING' THEN format('It waits for %s of its %s parents', told.open, told.expected)
             ELSE format('It had %s parents', told.expected) END, told.succeeded, told.failed, told.open);
    FOR seen IN
        SELECT parent.id, parent.kind, parent.status, its.must_complete
          FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id
         WHERE its.job_id = job.id AND parent.status <> 'COMPLETED' ORDER BY parent.finished_at IS NULL, parent.id LIMIT 5
    LOOP
        RETURN NEXT format('Its parent, job %s (%s), is %s%s.', seen.id, seen.kind, seen.status, CASE
            WHEN seen.status NOT IN ('FAILED', 'CANCELLED') THEN ''
            WHEN NOT seen.must_complete THEN ', and it runs anyway'
            WHEN job.status = 'CANCELLED' AND job.gate = 'after' AND job.cancel_requested_at IS NULL
                THEN format(': retry_job(%s) brings both back', seen.id)
            ELSE '' END);
    END LOOP;
END $$;

COMMENT ON FUNCTION explain_parents_of_job IS 'The jobs that a job waits for, and how they ended. People call explain_job(id).';
