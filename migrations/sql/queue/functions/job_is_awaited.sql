-- VOLATILE, so that it sees what was committed a moment ago: a DELETE that has waited for somebody who added a child asks
-- again, and STABLE it would answer by the snapshot from before the wait.
CREATE FUNCTION job_is_awaited(parent bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM job_parent AS its JOIN snap_processing_job AS child ON child.id = its.job_id
                    WHERE its.parent_id = parent AND child.finished_at IS NULL);
END $$;

COMMENT ON FUNCTION job_is_awaited IS 'Whether a job waits for this one, or may still read its result.';
