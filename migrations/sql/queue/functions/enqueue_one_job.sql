-- A running job that holds the unique key is not locked. A replaced job shows no error, progress or start of its
-- old payload.
CREATE FUNCTION enqueue_one_job(job jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    its record;
    on_conflict text := coalesce(job->>'on_conflict', 'existing');
    on_parent_failure text := coalesce(job->>'on_parent_failure', 'cancel');
    parents bigint[] := ARRAY(SELECT its::bigint FROM jsonb_array_elements_text(coalesce(nullif(job->'after', 'null'), '[]')) AS its);
    unknown CONSTANT jsonb := job_spec_rest(job) - '{unique_key, unique_scope, unique_by, on_conflict, after, on_parent_failure}'::text[];
    new_id bigint;
    holder bigint;
    its_status text;
    tries integer := 0;
BEGIN
    SELECT * INTO its FROM job_specs(jsonb_build_array(job));
    IF unknown <> '{}' THEN
        RAISE EXCEPTION 'unknown arguments: %', (SELECT string_agg(name, ', ' ORDER BY name) FROM jsonb_object_keys(unknown) AS name) USING ERRCODE = '22023';
    ELSIF job->>'unique_by' <> 'spec' THEN
        RAISE EXCEPTION 'unique_by must be spec, not %', job->>'unique_by' USING ERRCODE = '22023';
    ELSIF job->>'unique_by' IS NOT NULL AND job->>'unique_key' IS NOT NULL THEN
        RAISE EXCEPTION 'a job has a unique_key or unique_by, not both' USING ERRCODE = '22023';
    ELSIF its.unique_key IS NULL AND job->>'unique_scope' IS NOT NULL THEN
        RAISE EXCEPTION 'unique_scope % needs a unique_key or unique_by', job->>'unique_scope' USING ERRCODE = '22023';
    ELSIF on_conflict NOT IN ('existing', 'ignore', 'replace') THEN
        RAISE EXCEPTION 'on_conflict must be existing, ignore or replace, not %', on_conflict USING ERRCODE = '22023';
    ELSIF on_parent_failure NOT IN ('cancel', 'run') THEN
        RAISE EXCEPTION 'on_parent_failure must be cancel or run, not %', on_parent_failure USING ERRCODE = '22023';
    ELSIF on_conflict = 'replace' AND parents <> '{}' THEN  -- the holder may be older than them, or wait itself
        RAISE EXCEPTION 'a job with parents cannot replace another' USING ERRCODE = '22023';
    END IF;
    LOOP
        INSERT INTO snap_processing_job (
            kind, payload, queue, priority, next_retry_at, unique_key, unique_scope, max_attempts, concurrency_key,
            timeout_ms, tenant, snap_id, request_id, replay_of, traceparent, gate)
        VALUES (
            its.kind, its.payload, its.queue, its.priority, its.next_retry_at, its.unique_key, its.unique_scope, its.max_attempts, its.concurrency_key,
            its.timeout_ms, its.tenant, its.snap_id, its.request_id, its.replay_of, its.traceparent, CASE WHEN parents = '{}' THEN 'open' ELSE 'after' END)
            ON CONFLICT DO NOTHING RETURNING id INTO new_id;
        IF new_id IS NOT NULL AND parents <> '{}' THEN
            PERFORM job_wait_for(new_id, parents, on_parent_failure = 'cancel');
        END IF;
        EXIT WHEN new_id IS NOT NULL;

        holder := job_holder(its.kind, its.tenant, its.unique_key, its.unique_scope);
        tries := tries + 1;
        IF holder IS NULL AND tries > 100 THEN
            RAISE EXCEPTION 'a unique index that the queue does not know refuses this job of the kind %', its.kind USING ERRCODE = '23505';
        END IF;
        CONTINUE WHEN holder IS NULL;  -- the holder ended between the two statements: try again
        IF on_conflict = 'replace' THEN
            PERFORM FROM snap_processing_job WHERE id = holder AND status IN ('PENDING', 'RETRY_WAIT') FOR UPDATE;
        ELSE
            -- A waiting holder is locked: it must not begin before this transaction ends, as it would not see what the
            -- transaction wrote. A running holder is not locked: its worker would wait for the lock and settle nothing.
            PERFORM FROM snap_processing_job WHERE id = holder AND status IN ('PENDING', 'RETRY_WAIT') FOR SHARE;
        END IF;
        CONTINUE WHEN holder IS DISTINCT FROM job_holder(  -- the holder began or ended meanwhile
            its.kind, its.tenant, its.unique_key, its.unique_scope);
        EXIT WHEN on_conflict = 'ignore';
        new_id := holder;
        EXIT WHEN on_conflict = 'existing';

        its_status := (SELECT status FROM snap_processing_job WHERE id = holder);
        IF its_status NOT IN ('PENDING', 'RETRY_WAIT') THEN
            RAISE EXCEPTION 'job % holds the unique key % and is %: only a waiting job can be replaced',
                holder, its.unique_key, its_status USING ERRCODE = '23505';
        END IF;
        UPDATE snap_processing_job
           SET payload = its.payload, queue = its.queue, priority = its.priority, next_retry_at = its.next_retry_at,
               max_attempts = its.max_attempts, attempt_count = 0, interruptions = 0,
               losses = 0, memory_mb = NULL, gate = CASE gate WHEN 'after' THEN 'after' ELSE 'open' END, lane = '', concurrency_key = its.concurrency_key,
               timeout_ms = its.timeout_ms, snap_id = its.snap_id, request_id = its.request_id,
               traceparent = its.traceparent, last_error = NULL,
               progress = NULL, started_at = NULL
         WHERE id = holder;
        IF job_has_rules() THEN
            PERFORM job_label(ARRAY[holder]);
        END IF;
        PERFORM pg_notify('snapapp_job', its.queue);
        EXIT;
    END LOOP;
    RETURN new_id;
END $$;

COMMENT ON FUNCTION enqueue_one_job IS 'Adds one job with a unique key or parents, or does what its on_conflict says; enqueue_jobs calls it.';
