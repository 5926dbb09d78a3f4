-- Views for people: `SELECT * FROM queue_overview` in psql. None of them reads the finished rows as a whole.

CREATE VIEW queue_overview AS
SELECT live.queue,
       count(*) FILTER (WHERE live.status = 'PENDING') AS pending,
       count(*) FILTER (WHERE live.status = 'RETRY_WAIT') AS retry_wait,
       count(*) FILTER (WHERE live.status IN ('PENDING', 'RETRY_WAIT') AND live.next_retry_at <= now()) AS due,
       count(*) FILTER (WHERE live.status = 'RUNNING') AS running,
       count(*) FILTER (WHERE live.status = 'FAILED') AS failed,
       date_trunc('second', now() - min(live.next_retry_at)
           FILTER (WHERE live.status IN ('PENDING', 'RETRY_WAIT') AND live.next_retry_at <= now())) AS oldest_due,
       max(paused.paused_at) AS paused_at,
       max(paused.paused_reason) AS paused_reason
  FROM (SELECT queue, status, next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND suspect
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job WHERE status = 'RUNNING'
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job WHERE status = 'FAILED') AS live
  LEFT JOIN job_queue AS paused ON paused.name = live.queue
 GROUP BY live.queue
 ORDER BY live.queue;

CREATE VIEW queue_stuck AS
SELECT id, queue, kind, 'its lease ended ' || date_trunc('second', now() - lock_expires_at) || ' ago' AS why,
       claimed_by, locked_at, lock_expires_at, attempt_count, max_attempts
  FROM snap_processing_job
 WHERE status = 'RUNNING' AND lock_expires_at < now()
UNION ALL
SELECT job.id, job.queue, job.kind, 'no worker alive knows the kind ' || job.kind,
       NULL, NULL, NULL, job.attempt_count, job.max_attempts
  FROM (SELECT kind, min(id) AS id FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect AND next_retry_at < now() - interval '1 minute'
         GROUP BY kind) AS waiting
  JOIN snap_processing_job AS job USING (id)
 WHERE NOT EXISTS (SELECT FROM job_worker WHERE expires_at > now() AND waiting.kind = ANY (kinds));

CREATE VIEW queue_dead_letters AS
SELECT id, queue, kind, tenant, finished_at, attempt_count, max_attempts, last_error, payload, request_id
  FROM snap_processing_job
 WHERE status = 'FAILED'
 ORDER BY id DESC;

CREATE VIEW queue_throughput AS
SELECT date_trunc('minute', finished_at) AS minute, queue, kind,
       count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
       count(*) FILTER (WHERE status = 'FAILED') AS failed,
       count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled,
       round(avg(extract(epoch FROM finished_at - started_at) * 1000)::numeric, 1) AS mean_ms,
       round(avg(extract(epoch FROM coalesce(started_at, finished_at) - created_at) * 1000)::numeric, 1) AS mean_wait_ms
  FROM snap_processing_job
 WHERE id > (SELECT coalesce(max(id), 0) - 100000 FROM snap_processing_job)
   AND finished_at > now() - interval '1 hour'
 GROUP BY 1, 2, 3
 ORDER BY 1 DESC, 2, 3;

CREATE VIEW worker_overview AS
SELECT id, name, host, pid, CASE WHEN expires_at < now() THEN 'LOST' ELSE status END AS status, note,
       queues, slots, cardinality(current_jobs) AS running, current_jobs, memory_mb,
       jobs_claimed, jobs_completed, jobs_failed, jobs_retried, jobs_recovered,
       CASE WHEN jobs_completed + jobs_failed > 0
            THEN round(busy_ms::numeric / (jobs_completed + jobs_failed), 1) END AS mean_ms,
       date_trunc('second', now() - started_at) AS up_for, date_trunc('second', now() - beat_at) AS last_beat
  FROM job_worker
 ORDER BY host, name, id;
