CREATE VIEW fleet_overview AS
SELECT master.host, CASE WHEN master.expires_at < now() THEN 'LOST' ELSE master.status END AS master,
       pool.name AS pool, pool.state, pool.state_reason, pool.queues, pool.balance, pool.fixed_at,
       pool.min_processes, pool.max_processes, pool.wanted, pool.present, pool.leaving, workers.slots, workers.running,
       workers.memory_mb, workers.jobs_completed, workers.jobs_failed, pool.note,
       master.pid, master.started_at, master.beat_at
  FROM job_master AS master
  LEFT JOIN job_pool AS pool USING (host)
  LEFT JOIN LATERAL (
      SELECT sum(slots) AS slots, sum(cardinality(current_jobs)) AS running, sum(memory_mb) AS memory_mb,
             sum(jobs_completed) AS jobs_completed, sum(jobs_failed) AS jobs_failed
        FROM job_worker
       WHERE job_worker.host = master.host AND job_worker.pool = pool.name AND job_worker.expires_at > now()) AS workers ON true
 ORDER BY master.host, pool.name;

COMMENT ON VIEW fleet_overview IS 'Every host with its pools; LOST means that its supervisor''s heartbeat stopped.';
