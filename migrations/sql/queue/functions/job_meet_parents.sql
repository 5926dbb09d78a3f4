-- Applies the state of its parents to a job that still waits for them: the job goes on waiting, is cancelled, or
-- becomes claimable. A job that was cancelled because of its parents comes back when none of them prevents it any more.
-- The caller has locked the job.
CREATE FUNCTION job_meet_parents(child bigint) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    job snap_processing_job;
    waits integer;
    lost bigint;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = child AND gate = 'after';
    IF NOT FOUND OR job.status NOT IN ('PENDING', 'RETRY_WAIT', 'CANCELLED') OR job.cancel_requested_at IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT count(*) FILTER (WHERE parent.finished_at IS NULL),
           min(parent.id) FILTER (WHERE its.must_complete AND parent.status IN ('FAILED', 'CANCELLED'))
      INTO waits, lost
      FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id
     WHERE its.job_id = child;
    IF lost IS NOT NULL THEN
        UPDATE snap_processing_job
           SET status = 'CANCELLED', lease_seq = lease_seq + 1, losses = 0, finished_at = clock_timestamp(),
               last_error = format('its parent, job %s, is %s', lost, (SELECT status FROM snap_processing_job WHERE id = lost))
         WHERE id = child AND finished_at IS NULL;
        RETURN;
    ELSIF job.status = 'CANCELLED' THEN
        BEGIN
            UPDATE snap_processing_job
               SET status = 'PENDING', lease_seq = lease_seq + 1, finished_at = NULL, last_error = NULL
             WHERE id = child;
        EXCEPTION WHEN unique_violation THEN  -- another job has its key now; the retry of its parent must still succeed
            RETURN;
        END;
    END IF;
    UPDATE snap_processing_job SET waits_for = waits WHERE id = child;
    IF waits = 0 THEN
        PERFORM job_admit(ARRAY[child]);
    END IF;
END $$;

COMMENT ON FUNCTION job_meet_parents IS 'Counts anew which parents a job waits for, and makes the job wait, run or end accordingly.';
