-- Status, attempts and priority stay, and so does the fence, because nobody holds the job.
CREATE FUNCTION run_job_now(job_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    ELSIF job.status NOT IN ('PENDING', 'RETRY_WAIT') THEN
        RAISE EXCEPTION 'job % is %: only a waiting job can be run now', job_id, job.status USING ERRCODE = '55000';
    ELSIF job.gate = 'after' THEN
        RAISE EXCEPTION 'job % waits for its parents: it can run when they have ended', job_id USING ERRCODE = '55000';
    END IF;
    -- now() and not the present moment, so that a claim in the same transaction finds the job; it is not before the
    -- bookmarks of claims, which leave two seconds for late commits
    UPDATE snap_processing_job
       SET next_retry_at = now(), gate = CASE gate WHEN 'later' THEN 'held' ELSE gate END
     WHERE id = job_id AND next_retry_at > now();
    PERFORM pg_notify('snapapp_job', job.queue);
    RETURN job_id;
END $$;

COMMENT ON FUNCTION run_job_now IS 'Makes a waiting job due now: a delayed one, or one that waits for its next attempt. Limits, fair queues and pauses hold.';
