-- An installation that has worked for a month. Enqueued evenly over 30 days, one after the other; of a thousand 10
-- failed for good and 10 were cancelled.
INSERT INTO snap_processing_job (kind, queue, tenant, status, attempt_count, payload, result, last_error, errors,
                                 lease_seq, created_at, next_retry_at, started_at, finished_at)
SELECT 'kind.' || n % :kinds, 'queue-' || n % :queues, CASE WHEN n % 3 = 0 THEN '' ELSE 'tenant-' || n % :tenants END,
       its.status, 1, jsonb_build_object('n', n, 'to', 'somebody' || n || '@example.com'),
       CASE its.status WHEN 'COMPLETED' THEN '{"ok": true}'::jsonb END,
       CASE its.status WHEN 'FAILED' THEN 'ConnectionError: host-' || n / 100 % :errors || ' refused' || chr(10) || 'at line 12' END,
       CASE its.status WHEN 'FAILED' THEN '[{"attempt": 1, "error": "ConnectionError"}]'::jsonb ELSE '[]' END,
       2, at, at, at + interval '1 second', at + interval '2 seconds' + n % 60 * interval '1 second'
  FROM generate_series(:first, :last) AS n
 CROSS JOIN LATERAL (
    SELECT CASE n % 100 WHEN 7 THEN 'FAILED' WHEN 8 THEN 'CANCELLED' ELSE 'COMPLETED' END AS status,
           now() - interval '2 minutes' - (:all - n) * (interval '30 days' / :all) AS at) AS its;

-- Ready for up to an hour.
INSERT INTO snap_processing_job (kind, queue, tenant, priority, payload, created_at, next_retry_at)
SELECT 'kind.' || n % :kinds, 'queue-' || n % :queues, CASE WHEN n % 3 = 0 THEN '' ELSE 'tenant-' || n % :tenants END,
       n % 3, jsonb_build_object('n', n), now() - n * (interval '1 hour' / :all), now() - n * (interval '1 hour' / :all)
  FROM generate_series(:first, :last) AS n;

-- Fifty workers with what they run, and the rest of the installation.
INSERT INTO job_worker (id, name, host, machine, pid, pid_started, queues, kinds, slots, memory_mb, current_jobs,
                        jobs_claimed, jobs_completed, busy_ms, expires_at)
SELECT md5(n::text), 'box-' || n, 'host-' || n / 10, 'elsewhere', n, 1, '{}',
       ARRAY(SELECT 'kind.' || k FROM generate_series(0, :kinds - 1) AS k), 16, 120, '{}',
       100000, 99000, 5000000, now() + interval '1 day'
  FROM generate_series(1, :workers) AS n;

INSERT INTO snap_processing_job (kind, queue, status, attempt_count, lease_seq, claimed_by, locked_at, lock_expires_at, started_at)
SELECT 'kind.' || n % :kinds, 'queue-' || n % :queues, 'RUNNING', 1, 1, md5((1 + n % :workers)::text), now(),
       now() + interval '1 day', now() FROM generate_series(1, :running) AS n;

UPDATE job_worker SET current_jobs = ARRAY(SELECT job.id FROM snap_processing_job AS job WHERE job.status = 'RUNNING' AND claimed_by = job_worker.id);

INSERT INTO job_history
SELECT at, length, kind, 500, 5, 1, 9, array_fill(7::bigint, ARRAY[24]), array_fill(3::bigint, ARRAY[30])
  FROM (SELECT date_trunc('minute', now()) - n * interval '1 min' AS at, 1 AS length FROM generate_series(0, 119) AS n
        UNION ALL SELECT date_trunc('hour', now()) - n * interval '10 min', 10 FROM generate_series(18, 150) AS n
        UNION ALL SELECT date_trunc('day', now()) - n * interval '1 hour', 60 FROM generate_series(30, 190) AS n) AS times
 CROSS JOIN (SELECT '' AS kind UNION ALL SELECT 'kind.' || k FROM generate_series(0, :kinds - 1) AS k) AS kinds
    ON CONFLICT DO NOTHING;

INSERT INTO job_cost (job_id, lease_seq, attempt, kind, outcome, started_at, wait_ms, wall_ms, cpu_ms, peak_mb)
SELECT n, 2, 1, 'kind.' || n % :kinds, 'COMPLETED', now() - n * interval '1 second', n % 97, n % 991, n % 503, 40 + n % 60
  FROM generate_series(1, 200000) AS n;

INSERT INTO job_log (job_id, attempt, message) SELECT n / 5, 1, 'line ' || n FROM generate_series(1, 100000) AS n;

INSERT INTO job_audit (who, door, action, subject, jobs)
SELECT 'ana', 'token', 'job.retry', 'job ' || n, 1 FROM generate_series(1, 20000) AS n;

INSERT INTO job_worker_exit (worker_id, name, host, pid, queues, reason, jobs_completed, jobs_failed, started_at)
SELECT md5(n::text), 'box', 'host', n, '{}', 'stopped', 1, 0, now() - interval '1 hour' FROM generate_series(1, 2000) AS n;

INSERT INTO job_scaling (host, pool, balance, present, wanted, reason, inputs)
SELECT 'host', 'pool', 'auto', 1, 2, 'more waits', '{}' FROM generate_series(1, 20000) AS n;

INSERT INTO job_schedule (name, spec) SELECT 'nightly.' || n, '0 3 * * *' FROM generate_series(1, 30) AS n;

INSERT INTO job_limit (key_pattern, max_running) SELECT 'key:camera-' || n, 3 FROM generate_series(1, 30) AS n;

INSERT INTO job_parent
SELECT (SELECT max(id) FROM snap_processing_job WHERE status = 'RUNNING'), n, true FROM generate_series(1, 2000) AS n;
