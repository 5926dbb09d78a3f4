-- What people and other languages call. jobs/queue.py calls the same functions: there is no second version.

-- Every payload passes here, so this is also where its size is judged.
CREATE FUNCTION job_spec_hash(kind text, queue text, tenant text, payload jsonb) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    payload_text text := payload::text;
BEGIN
    -- 1 MiB of compact JSON: the blanks of jsonb's own text add up to a half
    IF octet_length(payload_text) > 1572864 THEN
        RAISE EXCEPTION 'the payload has % bytes as text, more than the 1572864 allowed', octet_length(payload_text)
            USING ERRCODE = '22023';
    END IF;
    RETURN sha256(convert_to(concat_ws(chr(10), kind, queue, tenant, payload_text), 'UTF8'));
END $$;

-- For rows that people insert themselves. The functions below fill these columns in, because a trigger for each row
-- would take a third of their speed.
CREATE FUNCTION job_before_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := coalesce(NEW.concurrency_key, nullif(NEW.lane, ''),
                         (SELECT NEW.tenant FROM job_queue WHERE name = NEW.queue AND fair), '');
    NEW.spec_hash := job_spec_hash(NEW.kind, NEW.queue, NEW.tenant, NEW.payload);
    RETURN NEW;
END $$;

CREATE TRIGGER job_before_insert BEFORE INSERT ON snap_processing_job
    FOR EACH ROW WHEN (NEW.spec_hash IS NULL) EXECUTE FUNCTION job_before_insert();

-- One NOTIFY a queue and transaction: each one takes a database-wide lock at commit. PostgreSQL drops repeats.
CREATE FUNCTION job_after_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('snapapp_job', queue) FROM (SELECT DISTINCT queue FROM inserted) AS touched;
    RETURN NULL;
END $$;

CREATE TRIGGER job_after_insert AFTER INSERT ON snap_processing_job
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION job_after_insert();


CREATE FUNCTION enqueue_job(
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


-- Many jobs in one call: an array of objects with the names of enqueue_job's arguments. Ids come in the array's
-- order; null where on_conflict = 'ignore' met a holder.
CREATE FUNCTION enqueue_jobs(jobs jsonb) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
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


-- A person's retry: the count starts again, the history stays.
CREATE FUNCTION retry_job(job_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
    holder bigint;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    ELSIF job.status NOT IN ('FAILED', 'CANCELLED') THEN
        RAISE EXCEPTION 'job % is %: only a FAILED or CANCELLED job can be retried', job_id, job.status
            USING ERRCODE = '55000';
    END IF;
    UPDATE snap_processing_job
       SET status = 'PENDING', lease_seq = lease_seq + 1, attempt_count = 0, interruptions = 0, suspect = false,
           next_retry_at = now(), cancel_requested_at = NULL, started_at = NULL, finished_at = NULL
     WHERE id = job_id;
    PERFORM pg_notify('snapapp_job', job.queue);
    RETURN job_id;
EXCEPTION WHEN unique_violation THEN
    SELECT other.id INTO holder FROM snap_processing_job AS other
     WHERE other.kind = job.kind AND other.tenant = job.tenant AND other.unique_key = job.unique_key
       AND other.unique_scope = job.unique_scope AND other.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING');
    RAISE EXCEPTION 'job % cannot be retried: job % holds its unique key %', job_id, holder, job.unique_key
        USING ERRCODE = '23505';
END $$;


-- Replay inserts a copy, so that no commit hook ever runs twice for one job.
CREATE FUNCTION replay_job(job_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    END IF;
    RETURN enqueue_job(
        kind => job.kind, payload => job.payload, queue => job.queue, priority => job.priority,
        max_attempts => job.max_attempts, concurrency_key => job.concurrency_key, timeout_ms => job.timeout_ms,
        tenant => job.tenant, snap_id => job.snap_id, request_id => job.request_id, replay_of => job.id);
END $$;


-- Waiting jobs end at once; of a running one it is a wish, and a completion that arrives first wins.
CREATE FUNCTION cancel_job(job_id bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    job snap_processing_job;
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', job_id USING ERRCODE = 'P0002';
    ELSIF job.status IN ('PENDING', 'RETRY_WAIT') THEN
        UPDATE snap_processing_job
           SET status = 'CANCELLED', lease_seq = lease_seq + 1, suspect = false,
               cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()
         WHERE id = job_id;
        RETURN 'CANCELLED';
    ELSIF job.status = 'RUNNING' THEN
        UPDATE snap_processing_job
           SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
         WHERE id = job_id;
        PERFORM pg_notify('snapapp_cancel', job.claimed_by);
    END IF;
    RETURN job.status;
END $$;


CREATE FUNCTION pause_queue(name text, reason text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    INSERT INTO job_queue AS q (name, paused_at, paused_reason) VALUES (pause_queue.name, now(), reason)
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, now()), paused_reason = excluded.paused_reason
$$;

CREATE FUNCTION resume_queue(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE job_queue SET paused_at = NULL, paused_reason = NULL WHERE job_queue.name = resume_queue.name;
    SELECT pg_notify('snapapp_job', resume_queue.name);
$$;


-- When the next job of these kinds is due (queues null: in any queue): a walk over the lanes, one probe each.
CREATE FUNCTION job_next_due(kinds text[], queues text[] DEFAULT NULL) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    WITH RECURSIVE lane AS (
        (SELECT queue, kind, priority, lane FROM snap_processing_job
          WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
          ORDER BY queue, kind, priority, lane LIMIT 1)
      UNION ALL
        SELECT next.* FROM lane CROSS JOIN LATERAL (
            SELECT job.queue, job.kind, job.priority, job.lane FROM snap_processing_job AS job
             WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
               AND (job.queue, job.kind, job.priority, job.lane) > (
                   lane.queue, lane.kind, lane.priority,
                   -- jump over all the lanes of a kind that is not ours
                   CASE WHEN lane.kind = ANY (kinds) THEN lane.lane ELSE chr(1114111) END)
             ORDER BY job.queue, job.kind, job.priority, job.lane LIMIT 1) AS next
    )
    SELECT min(first.next_retry_at) FROM lane CROSS JOIN LATERAL (
        SELECT job.next_retry_at FROM snap_processing_job AS job
         WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND NOT job.suspect
           AND job.queue = lane.queue AND job.kind = lane.kind
           AND job.priority = lane.priority AND job.lane = lane.lane
         ORDER BY job.next_retry_at LIMIT 1) AS first
     WHERE lane.kind = ANY (kinds) AND (queues IS NULL OR lane.queue = ANY (queues))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = lane.queue AND paused_at IS NOT NULL)
$$;
