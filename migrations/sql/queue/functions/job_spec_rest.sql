-- What is left of a new job without its plain arguments: unique keys, parents and their options, and what is unknown.
CREATE FUNCTION job_spec_rest(job jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT job - '{kind, payload, queue, priority, run_at, delay, max_attempts, default_attempts, concurrency_key, timeout_ms, tenant, snap_id, request_id, replay_of, traceparent}'::text[]
$$;

COMMENT ON FUNCTION job_spec_rest IS 'The arguments of a new job that are not plain; enqueue_jobs adds jobs without any the fast way.';
