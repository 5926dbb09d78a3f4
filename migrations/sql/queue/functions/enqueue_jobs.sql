-- Many jobs in one call: an array of objects with the names of enqueue_job's arguments. The ids are in the array's
-- order; an id is null if on_conflict = 'ignore' and another job holds the unique key.
CREATE FUNCTION enqueue_jobs(jobs jsonb) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    usual CONSTANT jsonb := '{"on_conflict": "existing", "on_parent_failure": "cancel"}';
    are_plain boolean := jsonb_strip_nulls(job_spec_rest(jobs->0)) <@ usual;
BEGIN
    IF jsonb_array_length(jobs) > 1 THEN  -- for one job, the query would take longer than the test
        are_plain := NOT EXISTS (SELECT FROM jsonb_array_elements(jobs) AS job WHERE NOT jsonb_strip_nulls(job_spec_rest(job)) <@ usual);
    END IF;
    IF are_plain THEN
        RETURN QUERY  -- without ON CONFLICT, which would take a fifth of the speed
        INSERT INTO snap_processing_job (
            kind, payload, queue, priority, next_retry_at, unique_key, unique_scope, max_attempts, concurrency_key,
            timeout_ms, tenant, snap_id, request_id, replay_of, traceparent)
        SELECT * FROM job_specs(jobs) RETURNING id;
        RETURN;
    END IF;
    -- Sorted by key, so that two bulk calls with the same keys cannot deadlock. Sorted by bytes, as Python sorts them:
    -- a caller that needs several calls in one transaction sorts its jobs first.
    RETURN QUERY
    WITH made AS MATERIALIZED (
        SELECT spec.place, enqueue_one_job(spec.job) AS id
          FROM (SELECT job, place FROM jsonb_array_elements(jobs) WITH ORDINALITY AS element (job, place)
                 ORDER BY job->>'kind' COLLATE "C", coalesce(job->>'tenant', '') COLLATE "C",
                          CASE WHEN job->>'unique_by' IS NULL THEN job->>'unique_key'
                               ELSE job_spec_key(job->>'kind', job->>'tenant', nullif(job->'payload', 'null'), (job->>'snap_id')::uuid)
                          END COLLATE "C", place) AS spec
    )
    SELECT made.id FROM made ORDER BY made.place;
END $$;

COMMENT ON FUNCTION enqueue_jobs IS 'Adds many jobs, given as an array of objects; returns their ids in order.';
