-- Joins snaps and jobs. The end of a snap is written in its own row, so pruning jobs loses nothing; before its end, its
-- state is that of its newest job. Jobs of other kinds for a snap (webhooks) do not count.
-- The view runs with the owner's rights, because the tenant's role has none on the queue.
CREATE VIEW snap_job WITH (security_barrier) AS
SELECT DISTINCT ON (snap_id)
       snap_id, tenant, id, status, attempt_count, max_attempts, next_retry_at,
       -- the queue writes the start a moment after the claim; for a client a RUNNING job has begun
       coalesce(started_at, locked_at) AS started_at, finished_at, last_error, progress, cancel_requested_at, created_at
  FROM snap_processing_job
 WHERE snap_id IS NOT NULL AND kind = 'snap.process'
   AND tenant = nullif(current_setting('snapapp.tenant', true), '')
 ORDER BY snap_id, id DESC;

GRANT SELECT ON snap_job TO snapapp_tenant;

COMMENT ON VIEW snap_job IS 'The newest job of each snap, of the tenant in the setting snapapp.tenant only.';
