-- Notes a job with children that ended, was revived or was deleted, for job_parents_changed. A negative id: revived.
CREATE FUNCTION job_parent_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (OLD.finished_at IS NULL) <> (NEW.finished_at IS NULL) THEN
        PERFORM set_config('snapapp.parents', concat_ws(',', nullif(current_setting('snapapp.parents', true), ''),
            CASE WHEN TG_OP = 'UPDATE' AND NEW.finished_at IS NULL THEN -OLD.id ELSE OLD.id END), true);
    END IF;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION job_parent_changed IS 'Notes for the commit that a job with children has ended or was revived.';
