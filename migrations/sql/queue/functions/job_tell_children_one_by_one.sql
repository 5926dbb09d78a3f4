-- Used after one of the children has refused the change, so that only that one is left out.
CREATE FUNCTION job_tell_children_one_by_one(children bigint[], ended bigint[], revived bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    child bigint;
BEGIN
    FOREACH child IN ARRAY children LOOP
        BEGIN
            PERFORM job_tell_children(ARRAY[child], ended, revived);
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE ~ '^(40|53|55P03)' THEN
                RAISE;
            END IF;
            RAISE WARNING 'job % goes on waiting, because its row cannot be written: %', child, SQLERRM;
        END;
    END LOOP;
END $$;

COMMENT ON FUNCTION job_tell_children_one_by_one IS 'Like job_tell_children, and leaves out children whose row cannot be written.';
