CREATE VIEW queue_dead_letters AS
SELECT id, queue, kind, tenant, finished_at, attempt_count, max_attempts, last_error, payload, request_id
  FROM snap_processing_job
 WHERE status = 'FAILED'
 ORDER BY id DESC;

COMMENT ON VIEW queue_dead_letters IS 'Jobs that used up their attempts, newest first: SELECT retry_job(id) brings one back.';
