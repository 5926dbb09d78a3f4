CREATE VIEW worker_overview AS
SELECT id, name, host, pid, CASE WHEN expires_at < now() THEN 'LOST' ELSE status END AS status, note,
       queues, slots, cardinality(current_jobs) AS running, current_jobs, memory_mb,
       jobs_claimed, jobs_completed, jobs_failed, jobs_retried, jobs_recovered,
       CASE WHEN jobs_completed + jobs_failed > 0
            THEN round(busy_ms::numeric / (jobs_completed + jobs_failed), 1) END AS mean_ms,
       date_trunc('second', now() - started_at) AS up_for, date_trunc('second', now() - beat_at) AS last_beat
  FROM job_worker
 ORDER BY host, name, id;

COMMENT ON VIEW worker_overview IS 'The workers for people; LOST means that a worker''s heartbeat stopped.';
