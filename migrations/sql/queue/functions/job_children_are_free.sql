-- For a settle that has met a locked row: it leaves out whom it would wait for.
CREATE FUNCTION job_children_are_free(parent_id bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '1ms' AS $$
BEGIN
    PERFORM job_lock_children(ARRAY[parent_id]);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

COMMENT ON FUNCTION job_children_are_free IS 'Locks the jobs that wait for this one, unless somebody else has locked one of them.';
