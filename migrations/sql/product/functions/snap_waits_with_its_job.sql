-- A snap waits again when its job is retried by a person or replayed. A COMPLETED snap stays so until the new run
-- publishes its evidence.
CREATE FUNCTION snap_waits_with_its_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outside CONSTANT text := coalesce(current_setting('snapapp.tenant', true), '');
BEGIN
    PERFORM set_config('snapapp.tenant', NEW.tenant, true);
    UPDATE snap SET ended = NULL, error = NULL, cancelled_by = NULL, processed_at = NULL, updated_at = now()
     WHERE tenant = NEW.tenant AND id = NEW.snap_id AND ended IN ('FAILED', 'CANCELLED');
    PERFORM set_config('snapapp.tenant', outside, true);
    RETURN NULL;
END $$;

CREATE TRIGGER snap_waits_with_its_job AFTER UPDATE OF status ON snap_processing_job
    FOR EACH ROW WHEN (NEW.snap_id IS NOT NULL AND NEW.kind = 'snap.process'
                       AND NEW.status = 'PENDING' AND OLD.status IN ('FAILED', 'CANCELLED'))
    EXECUTE FUNCTION snap_waits_with_its_job();
CREATE TRIGGER snap_waits_with_its_replay AFTER INSERT ON snap_processing_job
    FOR EACH ROW WHEN (NEW.replay_of IS NOT NULL AND NEW.snap_id IS NOT NULL AND NEW.kind = 'snap.process')
    EXECUTE FUNCTION snap_waits_with_its_job();

COMMENT ON FUNCTION snap_waits_with_its_job IS 'Makes a snap wait again when its job is retried or replayed.';
