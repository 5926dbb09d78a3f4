CREATE FUNCTION enqueue_job(
    kind text,
    payload jsonb DEFAULT '{}',
    queue text DEFAULT NULL,
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    delay interval DEFAULT NULL,
    unique_scope text DEFAULT NULL,
    on_conflict text DEFAULT 'existing',
    concurrency_key text DEFAULT NULL,
    timeout_ms integer DEFAULT NULL,
    tenant text DEFAULT '',
    snap_id uuid DEFAULT NULL,
    request_id text DEFAULT NULL,
    replay_of bigint DEFAULT NULL,
    after bigint[] DEFAULT NULL,
    on_parent_failure text DEFAULT 'cancel',
    unique_by text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT enqueue_jobs(jsonb_build_array(jsonb_build_object(
        'kind', kind, 'payload', payload, 'queue', queue, 'priority', priority, 'run_at', run_at, 'unique_key', unique_key,
        'max_attempts', max_attempts, 'delay', delay, 'unique_scope', unique_scope, 'on_conflict', on_conflict,
        'concurrency_key', concurrency_key, 'timeout_ms', timeout_ms, 'tenant', tenant, 'snap_id', snap_id,
        'request_id', request_id, 'replay_of', replay_of, 'after', after, 'on_parent_failure', on_parent_failure, 'unique_by', unique_by,
        'traceparent', traceparent))));
END $$;

COMMENT ON FUNCTION enqueue_job IS 'Adds a job in your transaction and wakes the workers at commit; returns its id.';
