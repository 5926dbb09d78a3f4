-- Where snaps and jobs meet. A snap keeps its end, so pruning jobs loses nothing; until then its state is that of its
-- newest job. Other kinds may work for a snap too (webhooks): they say nothing about it.
-- With the owner's rights: the tenant role has none on the queue.
CREATE VIEW snap_job WITH (security_barrier) AS
SELECT DISTINCT ON (snap_id)
       snap_id, tenant, id, status, attempt_count, max_attempts, next_retry_at,
       -- the queue notes the start a moment after the claim: to a client what is running has begun
       coalesce(started_at, locked_at) AS started_at, finished_at, last_error, progress, cancel_requested_at, created_at
  FROM snap_processing_job
 WHERE snap_id IS NOT NULL AND kind = 'snap.process'
   AND tenant = nullif(current_setting('snapapp.tenant', true), '')
 ORDER BY snap_id, id DESC;

GRANT SELECT ON snap_job TO snapapp_tenant;

COMMENT ON VIEW snap_job IS 'The newest job of each snap, of the tenant in the setting snapapp.tenant only.';
