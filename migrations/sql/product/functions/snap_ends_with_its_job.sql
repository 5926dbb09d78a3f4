-- Row level security applies to the owner too, so the function sets the tenant that it writes for. A SET clause of the
-- function would be simpler, but needs a superuser.
CREATE FUNCTION snap_ends_with_its_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outside CONSTANT text := coalesce(current_setting('snapapp.tenant', true), '');
BEGIN
    PERFORM set_config('snapapp.tenant', NEW.tenant, true);
    UPDATE snap
       SET ended = NEW.status, processed_at = NEW.finished_at, updated_at = now(),
           error = CASE NEW.status WHEN 'FAILED' THEN coalesce(NEW.last_error, 'Failed without a reason')
                                   ELSE 'Cancelled' || coalesce(' by ' || cancelled_by, '') END
     WHERE tenant = NEW.tenant AND id = NEW.snap_id AND ended IS NULL
       AND NOT EXISTS (SELECT FROM snap_processing_job AS newer WHERE newer.snap_id = NEW.snap_id
                          AND newer.kind = NEW.kind AND newer.id > NEW.id);
    PERFORM set_config('snapapp.tenant', outside, true);
    RETURN NULL;
END $$;

CREATE TRIGGER snap_ends_with_its_job AFTER UPDATE OF status ON snap_processing_job
    FOR EACH ROW WHEN (NEW.snap_id IS NOT NULL AND NEW.kind = 'snap.process'
                       AND NEW.status IN ('FAILED', 'CANCELLED') AND OLD.status NOT IN ('FAILED', 'CANCELLED'))
    EXECUTE FUNCTION snap_ends_with_its_job();

COMMENT ON FUNCTION snap_ends_with_its_job IS 'When a job is FAILED or CANCELLED, writes that to its snap, unless the snap has evidence already.';
