-- The age of the oldest job leaves out jobs whose due time is -infinity: they have no age.
CREATE VIEW queue_overview AS
SELECT live.queue,
       count(*) FILTER (WHERE live.status = 'PENDING') AS pending,
       count(*) FILTER (WHERE live.status = 'RETRY_WAIT') AS retry_wait,
       count(*) FILTER (WHERE live.status IN ('PENDING', 'RETRY_WAIT') AND live.next_retry_at <= now()) AS due,
       count(*) FILTER (WHERE live.status = 'RUNNING') AS running,
       count(*) FILTER (WHERE live.status = 'FAILED') AS failed,
       date_trunc('second', now() - min(live.next_retry_at)
           FILTER (WHERE live.status IN ('PENDING', 'RETRY_WAIT') AND live.next_retry_at <= now()
                    AND isfinite(live.next_retry_at))) AS oldest_due,
       max(paused.paused_at) AS paused_at,
       max(paused.paused_reason) AS paused_reason,
       max(paused.paused_by) AS paused_by
  FROM (SELECT queue, status, next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
        UNION ALL SELECT queue, status, CASE WHEN gate <> 'after' THEN next_retry_at END FROM job_apart
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job WHERE status = 'RUNNING'
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job WHERE status = 'FAILED') AS live
  LEFT JOIN job_queue AS paused ON paused.name = live.queue
 GROUP BY live.queue
 ORDER BY live.queue;

COMMENT ON VIEW queue_overview IS 'Every queue with work in it: how many jobs, how old the oldest is, and who paused it.';
