-- A retry by a person: the count of attempts starts again, the history stays. The job is labelled anew, because nobody
-- labels finished jobs when limits change.
CREATE FUNCTION retry_job(job_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
    holder bigint;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    ELSIF job.status NOT IN ('FAILED', 'CANCELLED') THEN
        RAISE EXCEPTION 'job % is %: only a FAILED or CANCELLED job can be retried', job_id, job.status
            USING ERRCODE = '55000';
    END IF;
    UPDATE snap_processing_job
       SET status = 'PENDING', lease_seq = lease_seq + 1, attempt_count = 0, interruptions = 0, losses = 0,
           gate = CASE WHEN gate IN ('held', 'later') THEN 'held' WHEN gate = 'after' THEN 'after' ELSE 'open' END, memory_mb = NULL, next_retry_at = now(), cancel_requested_at = NULL, started_at = NULL, finished_at = NULL
     WHERE id = job_id;
    IF job.gate = 'after' THEN  -- it waits for parents that have not ended; the person knows how the others ended
        UPDATE job_parent AS its SET must_complete = false FROM snap_processing_job AS parent
         WHERE its.job_id = retry_job.job_id AND parent.id = its.parent_id AND parent.status IN ('FAILED', 'CANCELLED');
        PERFORM job_meet_parents(job_id);
    ELSIF job.gate IN ('held', 'later') OR job_has_rules() THEN
        PERFORM job_label(ARRAY[job_id]);
    END IF;
    PERFORM pg_notify('snapapp_job', job.queue);
    RETURN job_id;
EXCEPTION WHEN unique_violation THEN
    SELECT other.id INTO holder FROM snap_processing_job AS other
     WHERE other.kind = job.kind AND other.tenant = job.tenant AND other.unique_key = job.unique_key
       AND other.unique_scope = job.unique_scope AND other.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING');
    RAISE EXCEPTION 'job % cannot be retried: job % holds its unique key %', job_id, holder, job.unique_key
        USING ERRCODE = '23505';
END $$;

COMMENT ON FUNCTION retry_job IS 'Runs a FAILED or CANCELLED job again, counting from zero.';
