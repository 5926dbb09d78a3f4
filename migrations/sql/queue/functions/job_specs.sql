-- The columns of new jobs, from an array of objects with the names of enqueue_job's arguments. Arguments that are
-- missing or null get their defaults; so does an invalid traceparent, because a trace must not make its job fail. It is
-- a single query, so that PostgreSQL inlines it into the INSERT around it. Kinds are looked up one by one, and only for
-- missing arguments, because a join might change the order.
CREATE FUNCTION job_specs(jobs jsonb) RETURNS TABLE (
    kind text, payload jsonb, queue text, priority integer, next_retry_at timestamptz, unique_key text, unique_scope text,
    max_attempts integer, concurrency_key text, timeout_ms integer, tenant text, snap_id uuid, request_id text,
    replay_of bigint, traceparent text
) LANGUAGE sql STABLE AS $$
    SELECT job.kind, coalesce(job.payload, '{}'),
           coalesce(job.queue, (SELECT its.queue FROM job_kind AS its WHERE its.name = job.kind), 'default'),
           coalesce(job.priority, 0),
           coalesce(job.run_at, now()) + coalesce(job.delay, interval '0'),
           CASE WHEN job.unique_by IS NULL THEN job.unique_key
                ELSE job_spec_key(job.kind, job.tenant, job.payload, job.snap_id) END,
           CASE WHEN coalesce(job.unique_key, job.unique_by) IS NOT NULL THEN coalesce(job.unique_scope, 'live') END,
           coalesce(job.max_attempts, (SELECT its.max_attempts FROM job_kind AS its WHERE its.name = job.kind),
                    job.default_attempts, 3), job.concurrency_key, job.timeout_ms, coalesce(job.tenant, ''), job.snap_id,
           job.request_id, job.replay_of,
           CASE WHEN job.traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN job.traceparent END
      FROM jsonb_to_recordset(jobs) AS job (
           kind text, payload jsonb, queue text, priority integer, run_at timestamptz, delay interval, unique_key text,
           unique_scope text, unique_by text, max_attempts integer, concurrency_key text, timeout_ms integer,
           tenant text, snap_id uuid, request_id text, replay_of bigint, default_attempts integer, traceparent text)
     WHERE CASE WHEN greatest(octet_length(job.kind), octet_length(job.queue), octet_length(job.tenant), octet_length(job.request_id)) > 200
                  OR greatest(octet_length(job.unique_key), octet_length(job.concurrency_key)) > 500
                THEN job_refuse_long(to_jsonb(job)) ELSE true END
$$;

COMMENT ON FUNCTION job_specs IS 'The columns of new jobs, from what enqueue_jobs was given.';
