-- Many jobs in one call: an array of objects with the names of enqueue_job's arguments. The ids are in the array's
-- order; an id is null if on_conflict = 'ignore' and another job holds the unique key.
CREATE FUNCTION enqueue_jobs(jobs jsonb) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- The fast way, for jobs without unique keys and parents and with valid options.
    IF NOT jsonb_path_exists(jobs, '$[*] ? (
           @.unique_key != null || @.unique_by != null || @.unique_scope != null || @.after != null
           || @.after.type() == "array" && @.after.size() > 0
           || @.on_conflict.type() != "string" || @.on_parent_failure.type() != "string"
           || @.on_conflict != "existing" && @.on_conflict != "ignore" && @.on_conflict != "replace"
           || @.on_parent_failure != "cancel" && @.on_parent_failure != "run")') THEN
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
