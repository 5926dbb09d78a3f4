-- Notes a job with children that ended, was revived or was deleted, for job_parents_changed. A negative id: revived. A
-- job that is deleted after it has completed was counted then. Each new id copies the text that it is added to, so a long
-- text is put aside.
CREATE FUNCTION job_parent_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    noted text := nullif(current_setting('snapapp.parents', true), '');
BEGIN
    IF (CASE TG_OP WHEN 'DELETE' THEN OLD.status <> 'COMPLETED' ELSE (OLD.finished_at IS NULL) <> (NEW.finished_at IS NULL) END) THEN
        IF octet_length(noted) > 10000 THEN
            PERFORM set_config('snapapp.more_parents', concat_ws(',', nullif(current_setting('snapapp.more_parents', true), ''), noted), true);
            noted := NULL;
        END IF;
        PERFORM set_config('snapapp.parents', concat_ws(',', noted,
            CASE WHEN TG_OP = 'UPDATE' AND NEW.finished_at IS NULL THEN -OLD.id ELSE OLD.id END), true);
    END IF;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION job_parent_changed IS 'Notes for the commit that a job with children has ended or was revived.';
