-- Where snaps and jobs meet. A snap keeps its end, so pruning jobs loses nothing; until then its state is that of its
-- newest job. Other kinds may work for a snap too (webhooks): they say nothing about it.

-- With the owner's rights: the tenant role has none on the queue.
CREATE VIEW snap_job WITH (security_barrier) AS
SELECT DISTINCT ON (snap_id)
       snap_id, tenant, id, status, attempt_count, max_attempts, next_retry_at, started_at, finished_at, last_error,
       progress, cancel_requested_at, created_at
  FROM snap_processing_job
 WHERE snap_id IS NOT NULL AND kind = 'snap.process'
   AND tenant = nullif(current_setting('snapapp.tenant', true), '')
 ORDER BY snap_id, id DESC;

GRANT SELECT ON snap_job TO snapapp_tenant;

-- The owner is held to row level security too, so it says for whom it writes; a function's own SET clause would do
-- that more simply, but takes a superuser.
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

-- Retried by a person, or replayed: it waits again. What is COMPLETED stays so until something better is published.
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

CREATE TRIGGER snap_ends_with_its_job AFTER UPDATE OF status ON snap_processing_job
    FOR EACH ROW WHEN (NEW.snap_id IS NOT NULL AND NEW.kind = 'snap.process'
                       AND NEW.status IN ('FAILED', 'CANCELLED') AND OLD.status NOT IN ('FAILED', 'CANCELLED'))
    EXECUTE FUNCTION snap_ends_with_its_job();

CREATE TRIGGER snap_waits_with_its_job AFTER UPDATE OF status ON snap_processing_job
    FOR EACH ROW WHEN (NEW.snap_id IS NOT NULL AND NEW.kind = 'snap.process'
                       AND NEW.status = 'PENDING' AND OLD.status IN ('FAILED', 'CANCELLED'))
    EXECUTE FUNCTION snap_waits_with_its_job();

CREATE TRIGGER snap_waits_with_its_replay AFTER INSERT ON snap_processing_job
    FOR EACH ROW WHEN (NEW.replay_of IS NOT NULL AND NEW.snap_id IS NOT NULL AND NEW.kind = 'snap.process')
    EXECUTE FUNCTION snap_waits_with_its_job();
