CREATE FUNCTION public.cancel_job(job_id bigint) RETURNS text
    LANGUAGE plpgsql
    AS $$
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
COMMENT ON FUNCTION public.cancel_job(job_id bigint) IS 'Ends a waiting job, asks a running one to stop; returns the status it found or made.';
CREATE FUNCTION public.enqueue_job(kind text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_key text DEFAULT NULL::text, max_attempts integer DEFAULT 3, delay interval DEFAULT NULL::interval, unique_scope text DEFAULT NULL::text, on_conflict text DEFAULT 'existing'::text, concurrency_key text DEFAULT NULL::text, timeout_ms integer DEFAULT NULL::integer, tenant text DEFAULT ''::text, snap_id uuid DEFAULT NULL::uuid, request_id text DEFAULT NULL::text, replay_of bigint DEFAULT NULL::bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
COMMENT ON FUNCTION public.enqueue_job(kind text, payload jsonb, queue text, priority integer, run_at timestamp with time zone, unique_key text, max_attempts integer, delay interval, unique_scope text, on_conflict text, concurrency_key text, timeout_ms integer, tenant text, snap_id uuid, request_id text, replay_of bigint) IS 'Adds a job in your transaction and wakes the workers at commit; returns its id.';
CREATE FUNCTION public.enqueue_jobs(jobs jsonb) RETURNS SETOF bigint
    LANGUAGE plpgsql
    AS $_$
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
END $_$;
COMMENT ON FUNCTION public.enqueue_jobs(jobs jsonb) IS 'Adds many jobs, given as an array of objects; returns their ids in order.';
CREATE FUNCTION public.job_after_insert() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('snapapp_job', queue) FROM (SELECT DISTINCT queue FROM inserted) AS touched;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION public.job_after_insert() IS 'Wakes the workers at commit, once a queue.';
CREATE FUNCTION public.job_before_insert() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.lane := coalesce(NEW.concurrency_key, nullif(NEW.lane, ''),
                         (SELECT NEW.tenant FROM job_queue WHERE name = NEW.queue AND fair), '');
    NEW.spec_hash := job_spec_hash(NEW.kind, NEW.queue, NEW.tenant, NEW.payload);
    RETURN NEW;
END $$;
COMMENT ON FUNCTION public.job_before_insert() IS 'Fills lane and spec_hash of a new job and refuses a payload that is too large.';
CREATE FUNCTION public.job_next_due(kinds text[], queues text[] DEFAULT NULL::text[]) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
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
COMMENT ON FUNCTION public.job_next_due(kinds text[], queues text[]) IS 'When the next waiting job of these kinds may run; the workers ask it to know how long they may sleep.';
CREATE FUNCTION public.job_spec_hash(kind text, queue text, tenant text, payload jsonb) RETURNS bytea
    LANGUAGE plpgsql
    AS $$
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
COMMENT ON FUNCTION public.job_spec_hash(kind text, queue text, tenant text, payload jsonb) IS 'SHA-256 of what makes a job what it is; lines of kind, queue, tenant and payload.';
CREATE FUNCTION public.pause_queue(name text, reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO job_queue AS q (name, paused_at, paused_reason) VALUES (pause_queue.name, now(), reason)
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, now()), paused_reason = excluded.paused_reason
$$;
COMMENT ON FUNCTION public.pause_queue(name text, reason text) IS 'No worker claims from this queue until resume_queue(name).';
CREATE FUNCTION public.replay_job(job_id bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
COMMENT ON FUNCTION public.replay_job(job_id bigint) IS 'Runs a copy of a job; returns the copy''s id.';
CREATE FUNCTION public.resume_queue(name text) RETURNS void
    LANGUAGE sql
    AS $$
    UPDATE job_queue SET paused_at = NULL, paused_reason = NULL WHERE job_queue.name = resume_queue.name;
    SELECT pg_notify('snapapp_job', resume_queue.name);
$$;
COMMENT ON FUNCTION public.resume_queue(name text) IS 'The opposite of pause_queue.';
CREATE FUNCTION public.retry_job(job_id bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
COMMENT ON FUNCTION public.retry_job(job_id bigint) IS 'Runs a FAILED or CANCELLED job again, counting from zero.';
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.job_limit (
    key_pattern text NOT NULL COLLATE pg_catalog."C",
    max_running integer,
    rate double precision,
    burst integer,
    CONSTRAINT job_limit_burst_check CHECK ((burst > 0)),
    CONSTRAINT job_limit_max_running_check CHECK ((max_running >= 0)),
    CONSTRAINT job_limit_rate_check CHECK ((rate > (0)::double precision))
);
COMMENT ON TABLE public.job_limit IS 'Limits by key pattern: jobs running at once, and a rate.';
CREATE TABLE public.job_log (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    level text DEFAULT 'INFO'::text NOT NULL,
    message text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT job_log_level_check CHECK ((level = ANY (ARRAY['DEBUG'::text, 'INFO'::text, 'WARNING'::text, 'ERROR'::text]))),
    CONSTRAINT job_log_message_check CHECK ((length(message) <= 4000))
);
COMMENT ON TABLE public.job_log IS 'What processors logged, a line a row.';
ALTER TABLE public.job_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.job_queue (
    name text NOT NULL COLLATE pg_catalog."C",
    fair boolean DEFAULT false NOT NULL,
    paused_at timestamp with time zone,
    paused_reason text
);
COMMENT ON TABLE public.job_queue IS 'Queues that are paused or shared out fairly by tenant; a queue needs no row here to exist.';
CREATE TABLE public.job_worker (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    host text NOT NULL,
    machine text NOT NULL,
    pid integer NOT NULL,
    pid_started bigint NOT NULL,
    queues text[] NOT NULL,
    kinds text[] NOT NULL,
    slots integer NOT NULL,
    status text DEFAULT 'ACTIVE'::text NOT NULL,
    note text,
    traces text,
    memory_mb integer DEFAULT 0 NOT NULL,
    current_jobs bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    jobs_claimed bigint DEFAULT 0 NOT NULL,
    jobs_completed bigint DEFAULT 0 NOT NULL,
    jobs_failed bigint DEFAULT 0 NOT NULL,
    jobs_retried bigint DEFAULT 0 NOT NULL,
    jobs_recovered bigint DEFAULT 0 NOT NULL,
    busy_ms bigint DEFAULT 0 NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    beat_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT job_worker_status_check CHECK ((status = ANY (ARRAY['ACTIVE'::text, 'DRAINING'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
COMMENT ON TABLE public.job_worker IS 'The roster: every process that works the queue, as of its last heartbeat.';
COMMENT ON COLUMN public.job_worker.machine IS 'Boot id and process namespace: on the same one, a dead pid is known to be dead.';
COMMENT ON COLUMN public.job_worker.note IS 'What holds it back, if anything does.';
COMMENT ON COLUMN public.job_worker.traces IS 'The file in which the process marks what it is running, read by whoever finds it dead.';
CREATE TABLE public.job_worker_exit (
    id bigint NOT NULL,
    worker_id text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    queues text[] NOT NULL,
    reason text NOT NULL,
    jobs_completed bigint NOT NULL,
    jobs_failed bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    exited_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE public.job_worker_exit IS 'How each worker ended.';
ALTER TABLE public.job_worker_exit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_worker_exit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.snap_processing_job (
    id bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    queue text DEFAULT 'default'::text NOT NULL COLLATE pg_catalog."C",
    lane text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'PENDING'::text NOT NULL COLLATE pg_catalog."C",
    priority integer DEFAULT 0 NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    snap_id uuid,
    tenant text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    attempt_count integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    next_retry_at timestamp with time zone DEFAULT now() NOT NULL,
    last_error text,
    errors jsonb DEFAULT '[]'::jsonb NOT NULL,
    claimed_by text COLLATE pg_catalog."C",
    locked_at timestamp with time zone,
    lock_expires_at timestamp with time zone,
    lease_seq bigint DEFAULT 0 NOT NULL,
    interruptions integer DEFAULT 0 NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    timeout_ms integer,
    cancel_requested_at timestamp with time zone,
    progress jsonb,
    result jsonb,
    spec_hash bytea,
    unique_key text COLLATE pg_catalog."C",
    unique_scope text COLLATE pg_catalog."C",
    concurrency_key text COLLATE pg_catalog."C",
    replay_of bigint,
    request_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    CONSTRAINT attempts_are_sane CHECK (((attempt_count >= ((status = 'RUNNING'::text))::integer) AND ((max_attempts >= 1) AND (max_attempts <= 1000)) AND (interruptions >= 0) AND (timeout_ms > 0))),
    CONSTRAINT concurrency_key_is_the_lane CHECK ((lane = concurrency_key)),
    CONSTRAINT final_means_finished CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])))),
    CONSTRAINT names_are_short CHECK ((((length(kind) >= 1) AND (length(kind) <= 200)) AND ((length(queue) >= 1) AND (length(queue) <= 200)) AND (length(lane) <= 500) AND (length(tenant) <= 200) AND (length(unique_key) <= 500) AND (length(request_id) <= 200))),
    CONSTRAINT priority_is_bounded CHECK (((priority >= '-1000'::integer) AND (priority <= 1000))),
    CONSTRAINT running_means_leased CHECK ((num_nonnulls(claimed_by, locked_at, lock_expires_at) =
CASE status
    WHEN 'RUNNING'::text THEN 3
    ELSE 0
END)),
    CONSTRAINT status_is_known CHECK ((status = ANY (ARRAY['PENDING'::text, 'RUNNING'::text, 'RETRY_WAIT'::text, 'COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text]))),
    CONSTRAINT unique_key_has_a_scope CHECK ((((unique_key IS NULL) = (unique_scope IS NULL)) AND (unique_scope = ANY (ARRAY['waiting'::text, 'live'::text, 'ever'::text])))),
    CONSTRAINT values_are_capped CHECK (((pg_column_size(payload) <= 6500000) AND (pg_column_size(result) <= 6500000) AND (pg_column_size(progress) <= 410000) AND (length(last_error) <= 4000)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_insert_scale_factor='0.2', autovacuum_analyze_scale_factor='0.05', autovacuum_analyze_threshold='1000', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE public.snap_processing_job IS 'The job queue: one row a job. Change status only through retry_job, cancel_job and their like: they keep the fence (lease_seq) right.';
COMMENT ON COLUMN public.snap_processing_job.id IS 'Identity; ascending, so pruning walks it.';
COMMENT ON COLUMN public.snap_processing_job.kind IS 'Which processor runs it. A kind that no worker knows stays PENDING and is reported in queue_stuck.';
COMMENT ON COLUMN public.snap_processing_job.queue IS 'Which queue it waits in; see pause_queue(name, reason).';
COMMENT ON COLUMN public.snap_processing_job.lane IS 'Order holds within a lane: the concurrency key, else the tenant in a fair queue, else empty.';
COMMENT ON COLUMN public.snap_processing_job.status IS 'PENDING, RUNNING, RETRY_WAIT (failed, comes again), COMPLETED, FAILED (dead letter) or CANCELLED.';
COMMENT ON COLUMN public.snap_processing_job.priority IS 'Higher first, -1000 to 1000.';
COMMENT ON COLUMN public.snap_processing_job.payload IS 'What the processor is given; at most 1 MiB.';
COMMENT ON COLUMN public.snap_processing_job.snap_id IS 'The snap this job works for, if any.';
COMMENT ON COLUMN public.snap_processing_job.tenant IS 'On whose behalf; empty for the house itself.';
COMMENT ON COLUMN public.snap_processing_job.attempt_count IS 'Attempts begun: counted by the claim, so a job that kills its worker uses them up too.';
COMMENT ON COLUMN public.snap_processing_job.max_attempts IS 'After this many attempts the job is FAILED.';
COMMENT ON COLUMN public.snap_processing_job.next_retry_at IS 'When it may run next; also the delay of a new job.';
COMMENT ON COLUMN public.snap_processing_job.last_error IS 'The last failure, at most 4,000 characters.';
COMMENT ON COLUMN public.snap_processing_job.errors IS 'One entry for each failed attempt, the last 20.';
COMMENT ON COLUMN public.snap_processing_job.claimed_by IS 'The worker that holds it (job_worker.id); a fresh id at every process start.';
COMMENT ON COLUMN public.snap_processing_job.locked_at IS 'The last heartbeat of its holder.';
COMMENT ON COLUMN public.snap_processing_job.lock_expires_at IS 'Recovered after this if no heartbeat comes.';
COMMENT ON COLUMN public.snap_processing_job.lease_seq IS 'The fence: raised by every change of status, never reset. A write that names an older one does not land.';
COMMENT ON COLUMN public.snap_processing_job.interruptions IS 'How often a shutdown handed it back while it ran.';
COMMENT ON COLUMN public.snap_processing_job.suspect IS 'It was running when its worker died: it runs next with nothing beside it.';
COMMENT ON COLUMN public.snap_processing_job.timeout_ms IS 'Its own time limit; the kind''s when null.';
COMMENT ON COLUMN public.snap_processing_job.cancel_requested_at IS 'Somebody wants it to stop.';
COMMENT ON COLUMN public.snap_processing_job.progress IS 'What the processor last reported with update_progress.';
COMMENT ON COLUMN public.snap_processing_job.result IS 'What the processor returned.';
COMMENT ON COLUMN public.snap_processing_job.spec_hash IS 'SHA-256 of kind, queue, tenant and payload, computed here: equal specs have equal hashes.';
COMMENT ON COLUMN public.snap_processing_job.unique_key IS 'At most one job of this kind and tenant with this key within unique_scope.';
COMMENT ON COLUMN public.snap_processing_job.unique_scope IS 'waiting (until first claimed), live (waiting or running) or ever.';
COMMENT ON COLUMN public.snap_processing_job.concurrency_key IS 'Jobs with one key share a lane and its limits.';
COMMENT ON COLUMN public.snap_processing_job.replay_of IS 'The job that this one repeats.';
COMMENT ON COLUMN public.snap_processing_job.request_id IS 'The request that caused it, for the logs.';
COMMENT ON COLUMN public.snap_processing_job.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.snap_processing_job.started_at IS 'When its last attempt began to run (not when it was claimed).';
COMMENT ON COLUMN public.snap_processing_job.finished_at IS 'When it ended for good.';
CREATE VIEW public.queue_dead_letters AS
 SELECT id,
    queue,
    kind,
    tenant,
    finished_at,
    attempt_count,
    max_attempts,
    last_error,
    payload,
    request_id
   FROM public.snap_processing_job
  WHERE (status = 'FAILED'::text)
  ORDER BY id DESC;
COMMENT ON VIEW public.queue_dead_letters IS 'Jobs that used up their attempts, newest first: SELECT retry_job(id) brings one back.';
CREATE VIEW public.queue_overview AS
 SELECT live.queue,
    count(*) FILTER (WHERE (live.status = 'PENDING'::text)) AS pending,
    count(*) FILTER (WHERE (live.status = 'RETRY_WAIT'::text)) AS retry_wait,
    count(*) FILTER (WHERE ((live.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (live.next_retry_at <= now()))) AS due,
    count(*) FILTER (WHERE (live.status = 'RUNNING'::text)) AS running,
    count(*) FILTER (WHERE (live.status = 'FAILED'::text)) AS failed,
    date_trunc('second'::text, (now() - min(live.next_retry_at) FILTER (WHERE ((live.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (live.next_retry_at <= now()))))) AS oldest_due,
    max(paused.paused_at) AS paused_at,
    max(paused.paused_reason) AS paused_reason
   FROM (( SELECT snap_processing_job.queue,
            snap_processing_job.status,
            snap_processing_job.next_retry_at
           FROM public.snap_processing_job
          WHERE ((snap_processing_job.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (NOT snap_processing_job.suspect))
        UNION ALL
         SELECT snap_processing_job.queue,
            snap_processing_job.status,
            snap_processing_job.next_retry_at
           FROM public.snap_processing_job
          WHERE ((snap_processing_job.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND snap_processing_job.suspect)
        UNION ALL
         SELECT snap_processing_job.queue,
            snap_processing_job.status,
            snap_processing_job.next_retry_at
           FROM public.snap_processing_job
          WHERE (snap_processing_job.status = 'RUNNING'::text)
        UNION ALL
         SELECT snap_processing_job.queue,
            snap_processing_job.status,
            snap_processing_job.next_retry_at
           FROM public.snap_processing_job
          WHERE (snap_processing_job.status = 'FAILED'::text)) live
     LEFT JOIN public.job_queue paused ON ((paused.name = live.queue)))
  GROUP BY live.queue
  ORDER BY live.queue;
COMMENT ON VIEW public.queue_overview IS 'Every queue with work in it: how much, how old, paused by whom.';
CREATE VIEW public.queue_stuck AS
 SELECT snap_processing_job.id,
    snap_processing_job.queue,
    snap_processing_job.kind,
    (('its lease ended '::text || date_trunc('second'::text, (now() - snap_processing_job.lock_expires_at))) || ' ago'::text) AS why,
    snap_processing_job.claimed_by,
    snap_processing_job.locked_at,
    snap_processing_job.lock_expires_at,
    snap_processing_job.attempt_count,
    snap_processing_job.max_attempts
   FROM public.snap_processing_job
  WHERE ((snap_processing_job.status = 'RUNNING'::text) AND (snap_processing_job.lock_expires_at < now()))
UNION ALL
 SELECT job.id,
    job.queue,
    job.kind,
    ('no worker alive knows the kind '::text || job.kind) AS why,
    NULL::text AS claimed_by,
    NULL::timestamp with time zone AS locked_at,
    NULL::timestamp with time zone AS lock_expires_at,
    job.attempt_count,
    job.max_attempts
   FROM (( SELECT snap_processing_job.kind,
            min(snap_processing_job.id) AS id
           FROM public.snap_processing_job
          WHERE ((snap_processing_job.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (NOT snap_processing_job.suspect) AND (snap_processing_job.next_retry_at < (now() - '00:01:00'::interval)))
          GROUP BY snap_processing_job.kind) waiting
     JOIN public.snap_processing_job job USING (id))
  WHERE (NOT (EXISTS ( SELECT
           FROM public.job_worker
          WHERE ((job_worker.expires_at > now()) AND (waiting.kind = ANY (job_worker.kinds))))));
COMMENT ON VIEW public.queue_stuck IS 'Jobs that nobody moves: leases that ended, kinds that no worker knows.';
CREATE VIEW public.queue_throughput AS
 SELECT date_trunc('minute'::text, finished_at) AS minute,
    queue,
    kind,
    count(*) FILTER (WHERE (status = 'COMPLETED'::text)) AS completed,
    count(*) FILTER (WHERE (status = 'FAILED'::text)) AS failed,
    count(*) FILTER (WHERE (status = 'CANCELLED'::text)) AS cancelled,
    round(avg((EXTRACT(epoch FROM (finished_at - started_at)) * (1000)::numeric)), 1) AS mean_ms,
    round(avg((EXTRACT(epoch FROM (COALESCE(started_at, finished_at) - created_at)) * (1000)::numeric)), 1) AS mean_wait_ms
   FROM public.snap_processing_job
  WHERE ((id > ( SELECT (COALESCE(max(snap_processing_job_1.id), (0)::bigint) - 100000)
           FROM public.snap_processing_job snap_processing_job_1)) AND (finished_at > (now() - '01:00:00'::interval)))
  GROUP BY (date_trunc('minute'::text, finished_at)), queue, kind
  ORDER BY (date_trunc('minute'::text, finished_at)) DESC, queue, kind;
COMMENT ON VIEW public.queue_throughput IS 'The last hour by minute, over the newest 100,000 jobs.';
ALTER TABLE public.snap_processing_job ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.snap_processing_job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW public.worker_overview AS
 SELECT id,
    name,
    host,
    pid,
        CASE
            WHEN (expires_at < now()) THEN 'LOST'::text
            ELSE status
        END AS status,
    note,
    queues,
    slots,
    cardinality(current_jobs) AS running,
    current_jobs,
    memory_mb,
    jobs_claimed,
    jobs_completed,
    jobs_failed,
    jobs_retried,
    jobs_recovered,
        CASE
            WHEN ((jobs_completed + jobs_failed) > 0) THEN round(((busy_ms)::numeric / ((jobs_completed + jobs_failed))::numeric), 1)
            ELSE NULL::numeric
        END AS mean_ms,
    date_trunc('second'::text, (now() - started_at)) AS up_for,
    date_trunc('second'::text, (now() - beat_at)) AS last_beat
   FROM public.job_worker
  ORDER BY host, name, id;
COMMENT ON VIEW public.worker_overview IS 'The roster as people read it; LOST means its heartbeat stopped.';
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.job_limit
    ADD CONSTRAINT job_limit_pkey PRIMARY KEY (key_pattern);
ALTER TABLE ONLY public.job_log
    ADD CONSTRAINT job_log_pkey PRIMARY KEY (job_id, id);
ALTER TABLE ONLY public.job_queue
    ADD CONSTRAINT job_queue_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.job_worker_exit
    ADD CONSTRAINT job_worker_exit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_worker
    ADD CONSTRAINT job_worker_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.snap_processing_job
    ADD CONSTRAINT snap_processing_job_pkey PRIMARY KEY (id);
CREATE INDEX snap_processing_job_failed ON public.snap_processing_job USING btree (id) WHERE (status = 'FAILED'::text);
CREATE INDEX snap_processing_job_running ON public.snap_processing_job USING btree (id) WHERE (status = 'RUNNING'::text);
CREATE INDEX snap_processing_job_snap ON public.snap_processing_job USING btree (snap_id, id) WHERE (snap_id IS NOT NULL);
CREATE INDEX snap_processing_job_suspect ON public.snap_processing_job USING btree (next_retry_at, id) WHERE (suspect AND (status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])));
CREATE UNIQUE INDEX snap_processing_job_unique_ever ON public.snap_processing_job USING btree (kind, tenant, unique_key) WHERE (unique_scope = 'ever'::text);
CREATE UNIQUE INDEX snap_processing_job_unique_live ON public.snap_processing_job USING btree (kind, tenant, unique_key) WHERE ((unique_scope = 'live'::text) AND (status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text, 'RUNNING'::text])));
CREATE UNIQUE INDEX snap_processing_job_unique_waiting ON public.snap_processing_job USING btree (kind, tenant, unique_key) WHERE ((unique_scope = 'waiting'::text) AND (status = 'PENDING'::text) AND (lease_seq = 0));
CREATE INDEX snap_processing_job_waiting ON public.snap_processing_job USING btree (queue, kind, priority, lane, next_retry_at, id) WHERE ((status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (NOT suspect));
CREATE TRIGGER job_after_insert AFTER INSERT ON public.snap_processing_job REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION public.job_after_insert();
CREATE TRIGGER job_before_insert BEFORE INSERT ON public.snap_processing_job FOR EACH ROW WHEN ((new.spec_hash IS NULL)) EXECUTE FUNCTION public.job_before_insert();
