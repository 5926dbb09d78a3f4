-- By the newest ids, so that it does not read the finished rows as a whole.
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

COMMENT ON VIEW queue_throughput IS 'The last hour by minute, over the newest 100,000 jobs.';
