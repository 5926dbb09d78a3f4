-- Writes on each of these rows whether a rule covers it. A running job then counts under its key. Rows that another
-- transaction has locked are left out: a worker that waited for one would claim nothing meanwhile.
CREATE FUNCTION job_label(ids bigint[]) RETURNS boolean LANGUAGE sql AS $$
    WITH its AS MATERIALIZED (
        SELECT job.id, job.queue, job.concurrency_key, rule.lane, rule.lane IS NOT NULL AS is_covered
          FROM snap_processing_job AS job
         CROSS JOIN LATERAL (
            SELECT job_lane_of(job.queue, job.kind, job.tenant, job.concurrency_key) AS lane) AS rule
         WHERE job.id = ANY (ids) AND job.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING') AND job.gate <> 'after'
           AND (job.gate IN ('held', 'later'), job.lane) IS DISTINCT FROM (rule.lane IS NOT NULL, coalesce(rule.lane, ''))
         ORDER BY job.id
    ), free AS MATERIALIZED (
        -- row by row, because the planner takes `ids` for few: joined with `its`, each would be compared with each
        SELECT its.*
          FROM its
         CROSS JOIN LATERAL (SELECT FROM snap_processing_job WHERE id = its.id FOR NO KEY UPDATE SKIP LOCKED) AS locked
    ), labelled AS (
        UPDATE snap_processing_job AS job
           SET lane = coalesce(its.lane, ''),
               gate = CASE WHEN its.is_covered AND (job.status = 'RUNNING' OR job.next_retry_at <= now()) THEN 'held'
                           WHEN its.is_covered THEN 'later'
                           WHEN job.losses >= 2 OR job.memory_mb IS NOT NULL THEN 'alone'
                           ELSE 'open' END
          FROM free AS its
         WHERE job.id = its.id AND job.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING')
           -- not one that was replaced before it was locked here: enqueue_one_job has labelled it by its new key
           AND (job.queue, job.concurrency_key) IS NOT DISTINCT FROM (its.queue, its.concurrency_key)
    )
    SELECT (SELECT count(*) FROM its) = (SELECT count(*) FROM free)
$$;

COMMENT ON FUNCTION job_label IS 'Sets gate and lane of these jobs by the present limits and fair queues. False: some were locked, and have their old label.';
