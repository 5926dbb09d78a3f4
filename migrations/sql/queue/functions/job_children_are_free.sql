-- Used by a settle after it met a locked row: it leaves out jobs whose children are locked, instead of waiting for
-- them.
CREATE FUNCTION job_children_are_free(parent_id bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '1ms' AS $$
BEGIN
    PERFORM job_lock_children(ARRAY[parent_id]);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

COMMENT ON FUNCTION job_children_are_free IS 'Locks the jobs that wait for this one. False: another transaction has locked one of them.';
