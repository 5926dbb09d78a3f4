-- Of a job with children that ended, was revived or was deleted: notes it for job_parents_changed. Minus: it was revived.
CREATE FUNCTION job_parent_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (OLD.finished_at IS NULL) <> (NEW.finished_at IS NULL) THEN
        PERFORM set_config('snapapp.parents', concat_ws(',', nullif(current_setting('snapapp.parents', true), ''),
            CASE WHEN TG_OP = 'UPDATE' AND NEW.finished_at IS NULL THEN -OLD.id ELSE OLD.id END), true);
    END IF;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION job_parent_changed IS 'Notes within the transaction that a job with children has ended or was revived.';
