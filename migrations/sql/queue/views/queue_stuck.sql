CREATE VIEW queue_stuck AS
SELECT id, queue, kind, 'its lease ended ' || date_trunc('second', now() - lock_expires_at) || ' ago' AS why,
       claimed_by, locked_at, lock_expires_at, attempt_count, max_attempts
  FROM snap_processing_job
 WHERE status = 'RUNNING' AND lock_expires_at < now()
UNION ALL
SELECT job.id, job.queue, job.kind, 'no worker alive knows the kind ' || job.kind,
       NULL, NULL, NULL, job.attempt_count, job.max_attempts
  FROM (SELECT kind, min(id) AS id
          FROM (SELECT kind, id, next_retry_at FROM snap_processing_job
                 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
                UNION ALL SELECT kind, id, next_retry_at FROM snap_processing_job
                 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
                UNION ALL SELECT kind, id, next_retry_at FROM snap_processing_job
                 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later'  -- workers look through these for due ones
                UNION ALL SELECT kind, id, next_retry_at FROM snap_processing_job
                 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone') AS due
         WHERE next_retry_at < now() - interval '1 minute'
         GROUP BY kind) AS waiting
  JOIN snap_processing_job AS job USING (id)
 WHERE NOT EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND waiting.kind = ANY (kinds));

COMMENT ON VIEW queue_stuck IS 'Jobs that no worker moves: running jobs whose lease has ended, and kinds that no worker knows.';
