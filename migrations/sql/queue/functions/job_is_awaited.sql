CREATE FUNCTION job_is_awaited(parent bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM job_parent AS its JOIN snap_processing_job AS child ON child.id = its.job_id
                    WHERE its.parent_id = parent AND child.finished_at IS NULL);
END $$;

COMMENT ON FUNCTION job_is_awaited IS 'Whether a job waits for this one, or may still read its result.';
