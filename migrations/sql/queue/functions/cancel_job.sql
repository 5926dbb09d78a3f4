-- A waiting job ends at once. A running job is asked to stop; if it completes first, it is COMPLETED.
CREATE FUNCTION cancel_job(job_id bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    ELSIF job.status IN ('PENDING', 'RETRY_WAIT') THEN
        UPDATE snap_processing_job
           SET status = 'CANCELLED', lease_seq = lease_seq + 1, losses = 0,
               cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()
         WHERE id = job_id;
        RETURN 'CANCELLED';
    ELSIF job.status = 'RUNNING' THEN
        UPDATE snap_processing_job
           SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
         WHERE id = job_id;
        PERFORM pg_notify('snapapp_cancel', job.claimed_by);
    END IF;
    RETURN job.status;
END $$;

COMMENT ON FUNCTION cancel_job IS 'Ends a waiting job, or asks a running one to stop; returns the job''s status after that.';
