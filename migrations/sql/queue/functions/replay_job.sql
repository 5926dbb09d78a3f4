-- Replay adds a copy, so that no commit hook ever runs twice for one job. The copy has the same parents, may read their
-- results, and waits for those that have not ended; no job waits for the copy.
CREATE FUNCTION replay_job(job_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    END IF;
    RETURN enqueue_job(
        kind => job.kind, payload => job.payload, queue => job.queue, priority => job.priority,
        max_attempts => job.max_attempts, concurrency_key => job.concurrency_key, timeout_ms => job.timeout_ms,
        tenant => job.tenant, snap_id => job.snap_id, request_id => job.request_id, replay_of => job.id,
        after => ARRAY(SELECT parent.id FROM job_parent AS its JOIN snap_processing_job AS parent ON parent.id = its.parent_id
                        WHERE its.job_id = replay_job.job_id),
        on_parent_failure => 'run');
END $$;

COMMENT ON FUNCTION replay_job IS 'Runs a copy of a job; returns the copy''s id.';
