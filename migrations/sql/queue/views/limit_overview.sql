CREATE VIEW limit_overview AS
WITH running AS (
    SELECT its.key, count(*) AS jobs FROM snap_processing_job AS job
     CROSS JOIN LATERAL (VALUES ('queue:' || job.queue), ('kind:' || job.kind), ('key:' || nullif(job.lane, ''))) AS its (key)
     WHERE job.status = 'RUNNING' AND job.gate = 'held' AND its.key IS NOT NULL
     GROUP BY its.key
)
SELECT its.key_pattern, its.max_running, its.rate, its.burst, count(seen.key) AS keys_running,
       coalesce(sum(seen.jobs), 0)::bigint AS running, count(*) FILTER (WHERE seen.jobs >= its.max_running) AS keys_full
  FROM job_limit AS its
  LEFT JOIN (SELECT running.*, ruling.key_pattern FROM running CROSS JOIN LATERAL job_limit_of(running.key) AS ruling)
         AS seen USING (key_pattern)
 GROUP BY its.key_pattern
 ORDER BY its.key_pattern;

COMMENT ON VIEW limit_overview IS 'Every limit, how many jobs run under it, and how many of its keys are full.';
