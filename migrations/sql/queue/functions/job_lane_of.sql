-- The lane of a job that a limit or a fair queue covers; null: none covers it.
CREATE FUNCTION job_lane_of(queue text, kind text, tenant text, concurrency_key text) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT its.lane
      FROM (SELECT EXISTS (SELECT FROM job_queue WHERE name = job_lane_of.queue AND fair) AS is_fair) AS queue
     CROSS JOIN LATERAL (SELECT coalesce(job_lane_of.concurrency_key, CASE WHEN is_fair THEN job_lane_of.tenant END, '')) AS its (lane)
     WHERE is_fair OR EXISTS (SELECT FROM job_limit_of('queue:' || job_lane_of.queue))
        OR EXISTS (SELECT FROM job_limit_of('kind:' || job_lane_of.kind))
        OR (its.lane <> '' AND EXISTS (SELECT FROM job_limit_of('key:' || its.lane)))
$$;

COMMENT ON FUNCTION job_lane_of IS 'The lane of a job that a limit or a fair queue covers, else null.';
