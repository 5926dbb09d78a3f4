-- The newest 1,000 rows of each kind, found by a loose index scan: as quick with a week of rows as with an hour.
CREATE VIEW kind_costs AS
WITH RECURSIVE known AS (
    (SELECT kind FROM job_cost ORDER BY kind LIMIT 1)
  UNION ALL
    SELECT next.kind FROM known CROSS JOIN LATERAL (
        SELECT kind FROM job_cost WHERE kind > known.kind ORDER BY kind LIMIT 1) AS next
)
SELECT known.kind, its.attempts, its.measured, its.since,
       wait.p50 AS wait_p50_ms, wait.p95 AS wait_p95_ms, wait.p99 AS wait_p99_ms,
       wall.p50 AS wall_p50_ms, wall.p95 AS wall_p95_ms, wall.p99 AS wall_p99_ms,
       cpu.p50 AS cpu_p50_ms, cpu.p95 AS cpu_p95_ms, cpu.p99 AS cpu_p99_ms,
       peak.p50 AS peak_p50_mb, peak.p95 AS peak_p95_mb, peak.p99 AS peak_p99_mb
  FROM known
 CROSS JOIN LATERAL (
    SELECT sum(stands_for) AS attempts, count(*) AS measured, min(started_at) AS since,
           array_agg(stands_for) AS weights, array_agg(wait_ms) AS waits, array_agg(wall_ms) AS walls,
           array_agg(cpu_ms) AS cpus, array_agg(peak_mb) AS peaks
      FROM (SELECT * FROM job_cost WHERE kind = known.kind ORDER BY started_at DESC LIMIT 1000) AS newest) AS its
 CROSS JOIN LATERAL job_percentiles(its.waits, its.weights) AS wait
 CROSS JOIN LATERAL job_percentiles(its.walls, its.weights) AS wall
 CROSS JOIN LATERAL job_percentiles(its.cpus, its.weights) AS cpu
 CROSS JOIN LATERAL job_percentiles(its.peaks, its.weights) AS peak
 ORDER BY known.kind;

COMMENT ON VIEW kind_costs IS 'How long attempts of each kind wait and run, and how much processor time and memory they need: percentiles of the newest 1,000 rows of job_cost.';
