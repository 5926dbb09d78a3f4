-- as 0001 made it
CREATE OR REPLACE VIEW queue_overview AS
SELECT live.queue,
       count(*) FILTER (WHERE live.status = 'PENDING') AS pending,
       count(*) FILTER (WHERE live.status = 'RETRY_WAIT') AS retry_wait,
       count(*) FILTER (WHERE live.status IN ('PENDING', 'RETRY_WAIT') AND live.next_retry_at <= now()) AS due,
       count(*) FILTER (WHERE live.status = 'RUNNING') AS running,
       count(*) FILTER (WHERE live.status = 'FAILED') AS failed,
       date_trunc('second', now() - min(live.next_retry_at)
           FILTER (WHERE live.status IN ('PENDING', 'RETRY_WAIT') AND live.next_retry_at <= now())) AS oldest_due,
       max(paused.paused_at) AS paused_at,
       max(paused.paused_reason) AS paused_reason
  FROM (SELECT queue, status, next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND suspect
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job WHERE status = 'RUNNING'
        UNION ALL SELECT queue, status, next_retry_at FROM snap_processing_job WHERE status = 'FAILED') AS live
  LEFT JOIN job_queue AS paused ON paused.name = live.queue
 GROUP BY live.queue
 ORDER BY live.queue;

-- as 0001 made it
CREATE OR REPLACE FUNCTION enqueue_job(
    kind text,
    payload jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL,
    max_attempts integer DEFAULT 3,
    delay interval DEFAULT NULL,
    unique_scope text DEFAULT NULL,
    on_conflict text DEFAULT 'existing',
    concurrency_key text DEFAULT NULL,
    timeout_ms integer DEFAULT NULL,
    tenant text DEFAULT '',
    snap_id uuid DEFAULT NULL,
    request_id text DEFAULT NULL,
    replay_of bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    scope text := CASE WHEN enqueue_job.unique_key IS NOT NULL THEN coalesce(enqueue_job.unique_scope, 'live') END;
    due timestamptz := coalesce(enqueue_job.run_at, now()) + coalesce(enqueue_job.delay, interval '0');
    its_lane text := coalesce(enqueue_job.concurrency_key, (SELECT enqueue_job.tenant FROM job_queue
                                                             WHERE name = enqueue_job.queue AND fair), '');
    hash bytea := job_spec_hash(enqueue_job.kind, enqueue_job.queue, enqueue_job.tenant, enqueue_job.payload);
    new_id bigint;
    holder record;
BEGIN
    IF enqueue_job.unique_key IS NULL AND enqueue_job.unique_scope IS NOT NULL THEN
        RAISE EXCEPTION 'unique_scope % needs a unique_key', enqueue_job.unique_scope USING ERRCODE = '22023';
    ELSIF (enqueue_job.on_conflict IN ('existing', 'ignore', 'replace')) IS NOT TRUE THEN
        RAISE EXCEPTION 'on_conflict must be existing, ignore or replace, not %', enqueue_job.on_conflict
            USING ERRCODE = '22023';
    END IF;
    LOOP
        INSERT INTO snap_processing_job (
            kind, payload, queue, priority, next_retry_at, unique_key, unique_scope, max_attempts,
            concurrency_key, lane, timeout_ms, tenant, snap_id, request_id, replay_of, spec_hash)
        VALUES (
            enqueue_job.kind, enqueue_job.payload, enqueue_job.queue, enqueue_job.priority, due,
            enqueue_job.unique_key, scope, enqueue_job.max_attempts, enqueue_job.concurrency_key, its_lane,
            enqueue_job.timeout_ms, enqueue_job.tenant, enqueue_job.snap_id, enqueue_job.request_id,
            enqueue_job.replay_of, hash)
        ON CONFLICT DO NOTHING
        RETURNING id INTO new_id;
        EXIT WHEN new_id IS NOT NULL;

        SELECT job.id, job.status INTO holder FROM snap_processing_job AS job
         WHERE job.kind = enqueue_job.kind AND job.tenant = enqueue_job.tenant
           AND job.unique_key = enqueue_job.unique_key
           AND (  -- the three indexes' own words, so that a generic plan finds them
               (scope = 'waiting' AND job.unique_scope = 'waiting' AND job.status = 'PENDING' AND job.lease_seq = 0)
            OR (scope = 'live' AND job.unique_scope = 'live' AND job.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING'))
            OR (scope = 'ever' AND job.unique_scope = 'ever'))
           FOR UPDATE;
        CONTINUE WHEN NOT FOUND;  -- the holder ended between the two statements: try again
        EXIT WHEN enqueue_job.on_conflict = 'ignore';
        new_id := holder.id;
        EXIT WHEN enqueue_job.on_conflict = 'existing';

        IF holder.status NOT IN ('PENDING', 'RETRY_WAIT') THEN
            RAISE EXCEPTION 'job % holds the unique key % and is %: only a waiting job can be replaced',
                holder.id, enqueue_job.unique_key, holder.status USING ERRCODE = '23505';
        END IF;
        UPDATE snap_processing_job AS job
           SET payload = enqueue_job.payload, queue = enqueue_job.queue, priority = enqueue_job.priority,
               next_retry_at = due, max_attempts = enqueue_job.max_attempts, attempt_count = 0, interruptions = 0,
               concurrency_key = enqueue_job.concurrency_key,
               lane = coalesce(enqueue_job.concurrency_key, (SELECT enqueue_job.tenant FROM job_queue
                                                              WHERE name = enqueue_job.queue AND fair), ''),
               timeout_ms = enqueue_job.timeout_ms, snap_id = enqueue_job.snap_id,
               request_id = enqueue_job.request_id, spec_hash = hash
         WHERE job.id = holder.id;
        PERFORM pg_notify('snapapp_job', enqueue_job.queue);
        EXIT;
    END LOOP;
    RETURN new_id;
END $$;

-- as 0001 made it
CREATE OR REPLACE FUNCTION enqueue_jobs(jobs jsonb) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    keyed boolean := jsonb_path_exists(jobs, '$[*] ? (@.unique_key != null || @.unique_scope != null)');
BEGIN
    IF NOT keyed THEN
        RETURN QUERY
        INSERT INTO snap_processing_job (
            kind, payload, queue, priority, next_retry_at, max_attempts, concurrency_key, lane, timeout_ms, tenant,
            snap_id, request_id, spec_hash)
        SELECT job.kind, coalesce(job.payload, '{}'), coalesce(job.queue, 'default'), coalesce(job.priority, 0),
               coalesce(job.run_at, now()) + coalesce(job.delay, interval '0'), coalesce(job.max_attempts, 3),
               job.concurrency_key, coalesce(job.concurrency_key, CASE WHEN fair.name IS NOT NULL THEN job.tenant END, ''),
               job.timeout_ms, coalesce(job.tenant, ''), job.snap_id, job.request_id,
               job_spec_hash(job.kind, coalesce(job.queue, 'default'), coalesce(job.tenant, ''),
                             coalesce(job.payload, '{}'))
          FROM ROWS FROM (jsonb_to_recordset(jobs) AS (
                   kind text, payload jsonb, queue text, priority integer, run_at timestamptz, delay interval,
                   max_attempts integer, concurrency_key text, timeout_ms integer, tenant text, snap_id uuid,
                   request_id text)) WITH ORDINALITY AS job (
               kind, payload, queue, priority, run_at, delay, max_attempts, concurrency_key, timeout_ms, tenant,
               snap_id, request_id, place)
          LEFT JOIN job_queue AS fair ON fair.fair AND fair.name = coalesce(job.queue, 'default')
         ORDER BY job.place
        RETURNING id;
        RETURN;
    END IF;
    -- In the order of the keys, so that two bulk calls with the same keys never wait for each other in a circle.
    RETURN QUERY
    WITH spec AS MATERIALIZED (
        SELECT element.value AS job, element.ordinality AS place
          FROM jsonb_array_elements(jobs) WITH ORDINALITY AS element
    ), made AS MATERIALIZED (
        SELECT spec.place, enqueue_job(
                   kind => job->>'kind', payload => coalesce(job->'payload', '{}'),
                   queue => coalesce(job->>'queue', 'default'), priority => coalesce((job->>'priority')::integer, 0),
                   run_at => (job->>'run_at')::timestamptz, delay => (job->>'delay')::interval,
                   unique_key => job->>'unique_key', unique_scope => job->>'unique_scope',
                   on_conflict => coalesce(job->>'on_conflict', 'existing'),
                   max_attempts => coalesce((job->>'max_attempts')::integer, 3),
                   concurrency_key => job->>'concurrency_key', timeout_ms => (job->>'timeout_ms')::integer,
                   tenant => coalesce(job->>'tenant', ''), snap_id => (job->>'snap_id')::uuid,
                   request_id => job->>'request_id') AS id
          FROM (SELECT * FROM spec ORDER BY job->>'kind', job->>'tenant', job->>'unique_key', place) AS spec
    )
    SELECT made.id FROM made ORDER BY made.place;
END $$;

-- as 0006 made it
CREATE OR REPLACE FUNCTION explain_limits_of_job(job snap_processing_job, OUT said text, OUT is_shut boolean)
    RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
DECLARE
    name text;
    its record;
    running bigint;
    room record;
BEGIN
    FOREACH name IN ARRAY ARRAY['queue:' || job.queue, 'key:' || nullif(job.lane, '')] LOOP
        SELECT * INTO its FROM job_limit_of(name);
        CONTINUE WHEN its.key_pattern IS NULL;
        SELECT count(*) INTO running FROM snap_processing_job AS other
         WHERE other.status = 'RUNNING' AND name IN ('queue:' || other.queue, 'key:' || other.lane);
        SELECT * INTO room FROM job_limit_room(name, running, coalesce(
            (SELECT full_at FROM job_limit_key WHERE key = name), now()));
        is_shut := its.max_running IS NOT DISTINCT FROM 0;
        IF is_shut THEN
            said := format('The limit %s lets nothing of %s run.', its.key_pattern, name);
            RETURN NEXT;
        ELSIF room.places = 0 THEN
            said := format('The limit %s lets %s of %s run at once, and %s run: it waits for one of them to end.',
                           its.key_pattern, its.max_running, name, running);
            RETURN NEXT;
        ELSIF room.tokens = 0 THEN
            said := format('The limit %s lets %s of %s start a second, after a burst of %s: the next one may start in %s.',
                           its.key_pattern, its.rate, name, its.burst, job_span(make_interval(secs => room.next_token_in)));
            RETURN NEXT;
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM explain_memory_of_job(job);
END $$;

-- as 0007 made it
CREATE OR REPLACE FUNCTION explain_waiting_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    is_due boolean := job.next_retry_at <= clock;
    is_held boolean := false;
    seen record;
BEGIN
    IF job.status = 'RETRY_WAIT' THEN
        RETURN NEXT format('Attempt %s of %s failed: %s', job.attempt_count, job.max_attempts,
                           left(split_part(job.last_error, chr(10), 1), 300));
    END IF;
    IF job.interruptions > 0 THEN
        RETURN NEXT format('A shutdown handed it back while it ran, %s times.', job.interruptions);
    END IF;
    IF job.attempt_count >= job.max_attempts THEN
        RETURN NEXT 'Its attempts are used up: the next worker that knows its kind writes it down as FAILED, without running it.';
    END IF;
    IF NOT isfinite(job.next_retry_at) AND NOT is_due THEN
        RETURN NEXT 'It waits and never becomes due.';
    ELSIF NOT is_due THEN
        RETURN NEXT format('It waits and may run at %s, in %s.',
            to_char(job.next_retry_at, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'), job_span(job.next_retry_at - clock));
    ELSIF NOT isfinite(job.next_retry_at) THEN
        RETURN NEXT 'It waits and has always been due.';
    ELSE
        RETURN NEXT format('It waits and has been due for %s.', job_span(clock - job.next_retry_at));
    END IF;

    SELECT paused_at, paused_reason, paused_by INTO seen
      FROM job_queue WHERE name = job.queue AND paused_at IS NOT NULL;
    IF FOUND THEN
        is_held := true;
        RETURN NEXT format('Its queue %s has been paused for %s%s, %s: resume_queue(%L) opens it.', job.queue,
            job_span(clock - seen.paused_at), ' by ' || seen.paused_by,
            coalesce('because: ' || seen.paused_reason, 'without a reason'), job.queue);
    END IF;

    FOR seen IN SELECT * FROM explain_limits_of_job(job) LOOP
        is_held := is_held OR seen.is_shut;
        RETURN NEXT seen.said;
    END LOOP;

    FOR seen IN SELECT * FROM explain_workers_of_job(job) LOOP
        is_held := is_held OR seen.is_held;
        RETURN NEXT seen.said;
    END LOOP;

    IF is_due AND NOT is_held THEN
        RETURN QUERY SELECT explain_place_of_job(job);
    END IF;
END $$;

DROP FUNCTION job_next_due_in, job_holder, job_places_kept;
