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
CREATE FUNCTION public.command_fleet(action text, pool text DEFAULT NULL::text, amount integer DEFAULT NULL::integer, reason text DEFAULT NULL::text, host text DEFAULT NULL::text, source text DEFAULT 'sql'::text, expires_in interval DEFAULT '00:01:00'::interval) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    hosts text[] := ARRAY(SELECT its.host FROM job_master AS its ORDER BY its.host);
    addressed text := coalesce(command_fleet.host, CASE WHEN cardinality(hosts) = 1 THEN hosts[1] END);
    new_id bigint;
BEGIN
    IF (command_fleet.action IN ('scale', 'restart', 'pause', 'resume', 'drain', 'stop')) IS NOT TRUE THEN
        RAISE EXCEPTION 'a fleet can be told to scale, restart, pause, resume, drain or stop, not to %',
            coalesce(command_fleet.action, 'null') USING ERRCODE = '22023';
    ELSIF command_fleet.action = 'scale' AND command_fleet.pool IS NULL THEN
        RAISE EXCEPTION 'say which pool to scale' USING ERRCODE = '22023';
    ELSIF command_fleet.action = 'stop' AND command_fleet.pool IS NOT NULL THEN
        RAISE EXCEPTION 'stop ends the whole supervisor of a host; to empty the pool % alone, drain it', command_fleet.pool
            USING ERRCODE = '22023';
    ELSIF command_fleet.amount IS NOT NULL AND command_fleet.action <> 'scale' THEN
        RAISE EXCEPTION 'only scale takes a number of processes' USING ERRCODE = '22023';
    ELSIF command_fleet.amount < 0 THEN
        RAISE EXCEPTION 'there cannot be % processes', command_fleet.amount USING ERRCODE = '22023';
    ELSIF cardinality(hosts) = 0 THEN
        RAISE EXCEPTION 'no supervisor has been seen on any host' USING ERRCODE = 'P0002';
    ELSIF addressed IS NULL THEN
        RAISE EXCEPTION 'say which host: there are %', array_to_string(hosts, ', ') USING ERRCODE = '22023';
    ELSIF addressed <> ALL (hosts) THEN
        RAISE EXCEPTION 'no supervisor has been seen on the host %; there are %', addressed, array_to_string(hosts, ', ')
            USING ERRCODE = 'P0002';
    ELSIF command_fleet.pool IS NOT NULL
          AND NOT EXISTS (SELECT FROM job_pool AS its WHERE its.host = addressed AND its.name = command_fleet.pool) THEN
        RAISE EXCEPTION 'there is no pool % on the host %; there are %', command_fleet.pool, addressed, coalesce(
            (SELECT string_agg(its.name, ', ' ORDER BY its.name) FROM job_pool AS its WHERE its.host = addressed), 'none')
            USING ERRCODE = 'P0002';
    END IF;
    INSERT INTO job_command (host, action, pool, amount, reason, source, expires_at)
    VALUES (addressed, command_fleet.action, command_fleet.pool, command_fleet.amount, command_fleet.reason,
            command_fleet.source, clock_timestamp() + command_fleet.expires_in)
    RETURNING id INTO new_id;
    PERFORM pg_notify('snapapp_fleet', addressed);
    RETURN new_id;
END $$;
COMMENT ON FUNCTION public.command_fleet(action text, pool text, amount integer, reason text, host text, source text, expires_in interval) IS 'Tells the supervisor of a host: SELECT command_fleet(''scale'', ''mail-supervisor'', 4).';
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
    holder bigint;
    its_status text;
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
        holder := job_holder(enqueue_job.kind, enqueue_job.tenant, enqueue_job.unique_key, scope);
        CONTINUE WHEN holder IS NULL;  -- it ended between the two statements: try again
        IF enqueue_job.on_conflict = 'replace' THEN
            PERFORM FROM snap_processing_job WHERE id = holder AND status IN ('PENDING', 'RETRY_WAIT') FOR UPDATE;
        ELSE
            -- A waiting one must not begin before this transaction ends, or it would not see what that has written. A
            -- running one is not locked: its end would wait for us, and its worker settle nothing else meanwhile.
            PERFORM FROM snap_processing_job WHERE id = holder AND status IN ('PENDING', 'RETRY_WAIT') FOR SHARE;
        END IF;
        CONTINUE WHEN holder IS DISTINCT FROM job_holder(
            enqueue_job.kind, enqueue_job.tenant, enqueue_job.unique_key, scope);  -- it began or ended meanwhile
        EXIT WHEN enqueue_job.on_conflict = 'ignore';
        new_id := holder;
        EXIT WHEN enqueue_job.on_conflict = 'existing';
        its_status := (SELECT status FROM snap_processing_job WHERE id = holder);
        IF its_status NOT IN ('PENDING', 'RETRY_WAIT') THEN
            RAISE EXCEPTION 'job % holds the unique key % and is %: only a waiting job can be replaced',
                holder, enqueue_job.unique_key, its_status USING ERRCODE = '23505';
        END IF;
        UPDATE snap_processing_job AS job
           SET payload = enqueue_job.payload, queue = enqueue_job.queue, priority = enqueue_job.priority,
               next_retry_at = due, max_attempts = enqueue_job.max_attempts, attempt_count = 0, interruptions = 0,
               concurrency_key = enqueue_job.concurrency_key,
               lane = coalesce(enqueue_job.concurrency_key, (SELECT enqueue_job.tenant FROM job_queue
                                                              WHERE name = enqueue_job.queue AND fair), ''),
               timeout_ms = enqueue_job.timeout_ms, snap_id = enqueue_job.snap_id,
               request_id = enqueue_job.request_id, spec_hash = hash, last_error = NULL, progress = NULL,
               started_at = NULL
         WHERE job.id = holder;
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
    -- In the order of the keys, so that two bulk calls with the same keys never wait for each other in a circle; the
    -- order of their bytes, because whoever needs several calls in one transaction sorts by that.
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
          FROM (SELECT * FROM spec
                 ORDER BY job->>'kind' COLLATE "C", coalesce(job->>'tenant', '') COLLATE "C", job->>'unique_key' COLLATE "C",
                          place) AS spec
    )
    SELECT made.id FROM made ORDER BY made.place;
END $_$;
COMMENT ON FUNCTION public.enqueue_jobs(jobs jsonb) IS 'Adds many jobs, given as an array of objects; returns their ids in order.';
CREATE TABLE public.job_schedule (
    name text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    tz text DEFAULT 'UTC'::text NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL COLLATE pg_catalog."C",
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    missed text DEFAULT 'once'::text NOT NULL,
    at_most integer DEFAULT 10 NOT NULL,
    overlap boolean DEFAULT false NOT NULL,
    settled_until timestamp with time zone DEFAULT now() NOT NULL,
    paused_at timestamp with time zone,
    paused_reason text,
    last_pause tstzrange,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    declared_at timestamp with time zone DEFAULT now() NOT NULL,
    declared_by text[] DEFAULT '{}'::text[] NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT attempts_are_sane CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT missed_is_known CHECK (((missed = ANY (ARRAY['skip'::text, 'once'::text, 'all'::text])) AND ((at_most >= 1) AND (at_most <= 1000)))),
    CONSTRAINT names_are_short CHECK ((((length(name) >= 1) AND (length(name) <= 200)) AND ((length(queue) >= 1) AND (length(queue) <= 200)) AND ((length(spec) >= 1) AND (length(spec) <= 500)) AND ((length(tz) >= 1) AND (length(tz) <= 100)))),
    CONSTRAINT payload_is_an_object CHECK ((jsonb_typeof(payload) = 'object'::text)),
    CONSTRAINT reason_means_paused CHECK (((paused_reason IS NULL) OR (paused_at IS NOT NULL)))
);
COMMENT ON TABLE public.job_schedule IS 'What fires again and again: declared in code with @scheduled, written here by the workers that know it.';
COMMENT ON COLUMN public.job_schedule.name IS 'Its name, and the kind of its jobs.';
COMMENT ON COLUMN public.job_schedule.spec IS 'Five cron fields, or every Ns: the multiples of N seconds since 1970 in UTC. Changed by the worker that declared it last; workers with another spec fire nothing.';
COMMENT ON COLUMN public.job_schedule.tz IS 'On whose clocks the cron fields are read.';
COMMENT ON COLUMN public.job_schedule.queue IS 'Which queue its jobs wait in.';
COMMENT ON COLUMN public.job_schedule.payload IS 'What its jobs are given, besides schedule and slot.';
COMMENT ON COLUMN public.job_schedule.max_attempts IS 'After this many attempts a job of it is FAILED.';
COMMENT ON COLUMN public.job_schedule.missed IS 'What becomes of slots that no worker noticed in time: skip, once (the newest runs late) or all (the newest at_most run late).';
COMMENT ON COLUMN public.job_schedule.at_most IS 'How many missed slots run where missed is all.';
COMMENT ON COLUMN public.job_schedule.overlap IS 'Whether a slot fires while the job of the one before has not ended.';
COMMENT ON COLUMN public.job_schedule.settled_until IS 'Every slot from created_at up to here was fired or skipped, and stood in job_schedule_slot.';
COMMENT ON COLUMN public.job_schedule.paused_at IS 'Since when it is paused; see pause_schedule(name, reason).';
COMMENT ON COLUMN public.job_schedule.paused_reason IS 'Why, for whoever wonders.';
COMMENT ON COLUMN public.job_schedule.last_pause IS 'The pause before: slots within it are skipped, even when they are noticed later.';
COMMENT ON COLUMN public.job_schedule.created_at IS 'When it was first declared; its first slot is later.';
COMMENT ON COLUMN public.job_schedule.declared_at IS 'When a worker last declared it.';
COMMENT ON COLUMN public.job_schedule.declared_by IS 'The workers that declared it as it is now; one that is not in job_worker any more does not count.';
CREATE FUNCTION public.enqueue_scheduled_job(schedule public.job_schedule, slot timestamp with time zone) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT enqueue_job(
        kind => schedule.name, queue => schedule.queue, max_attempts => schedule.max_attempts,
        payload => schedule.payload || jsonb_build_object(
            'schedule', schedule.name,
            'slot', to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
$$;
COMMENT ON FUNCTION public.enqueue_scheduled_job(schedule public.job_schedule, slot timestamp with time zone) IS 'Adds the job of a schedule for one slot; run_schedule(name) is what people call.';
CREATE FUNCTION public.explain_job(job_id bigint) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    job snap_processing_job;
    holder record;
    said text[] := '{}';
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id;
    IF NOT FOUND THEN
        RETURN format('There is no job %s.', job_id);
    END IF;
    IF job.status IN ('PENDING', 'RETRY_WAIT') THEN
        RETURN (SELECT string_agg(line, chr(10)) FROM explain_waiting_job(job) AS line);
    ELSIF job.status = 'RUNNING' THEN
        SELECT name, host, pid INTO holder FROM job_worker WHERE id = job.claimed_by;
        said := said || format('It runs, attempt %s of %s, %s, on worker %s.', job.attempt_count, job.max_attempts,
            coalesce('since ' || job_span(clock - job.started_at), 'claimed but not reported as begun yet'),
            CASE WHEN holder.name IS NULL THEN job.claimed_by || ', which is not on the roster'
                 ELSE format('%s (%s, pid %s)', holder.name, holder.host, holder.pid) END);
        IF job.lock_expires_at > clock THEN
            said := said || format('Last heartbeat %s ago; its lease ends in %s unless another comes.',
                job_span(clock - job.locked_at), job_span(job.lock_expires_at - clock));
        ELSE
            said := said || format('Last heartbeat %s ago; its lease ended %s ago, so it waits to be recovered%s.',
                job_span(clock - job.locked_at), job_span(clock - job.lock_expires_at),
                CASE WHEN EXISTS (SELECT FROM job_worker WHERE expires_at > clock)
                     THEN ', which a worker does with its next sweep' ELSE '; but no worker is alive to do so' END);
        END IF;
        IF job.suspect THEN
            said := said || 'It ran when its last worker died, so it runs with nothing beside it.'::text;
        END IF;
        IF job.cancel_requested_at IS NOT NULL THEN
            said := said || format('Somebody asked it to stop %s ago; a completion that arrives first wins.',
                job_span(clock - job.cancel_requested_at));
        END IF;
    ELSE
        said := said || format('It is %s since %s (%s ago), after %s of %s attempts.', job.status,
            to_char(job.finished_at, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'), job_span(clock - job.finished_at),
            job.attempt_count, job.max_attempts);
        IF job.started_at IS NOT NULL THEN
            said := said || format('Its last attempt ran for %s.', job_span(job.finished_at - job.started_at));
        END IF;
        IF job.status = 'CANCELLED' AND job.cancel_requested_at IS NOT NULL THEN
            said := said || format('Somebody cancelled it %s ago.', job_span(clock - job.cancel_requested_at));
        END IF;
        IF job.status <> 'COMPLETED' AND job.last_error IS NOT NULL THEN
            said := said || format('The last error: %s', left(split_part(job.last_error, chr(10), 1), 300));
        END IF;
        IF job.status <> 'COMPLETED' THEN
            said := said || format('retry_job(%s) runs it again, counting from zero.', job_id);
        END IF;
    END IF;
    RETURN array_to_string(said, chr(10));
END $$;
COMMENT ON FUNCTION public.explain_job(job_id bigint) IS 'Why a job is where it is, and what comes next: SELECT explain_job(42).';
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
    memory_mb integer,
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
COMMENT ON COLUMN public.snap_processing_job.suspect IS 'It was running when its worker died, or ran short of memory: it runs next with nothing beside it.';
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
COMMENT ON COLUMN public.snap_processing_job.memory_mb IS 'Its memory limit in MB, in the place of its kind''s, since an attempt ran short of memory.';
CREATE FUNCTION public.explain_limits_of_job(job public.snap_processing_job, OUT said text, OUT is_shut boolean) RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    name text;
    its record;
    running bigint;
    room record;
    kept_for bigint;
BEGIN
    FOREACH name IN ARRAY ARRAY['queue:' || job.queue, 'key:' || nullif(job.lane, '')] LOOP
        SELECT * INTO its FROM job_limit_of(name);
        CONTINUE WHEN its.key_pattern IS NULL;
        SELECT count(*) INTO running FROM snap_processing_job AS other
         WHERE other.status = 'RUNNING' AND name IN ('queue:' || other.queue, 'key:' || other.lane);
        SELECT * INTO room FROM job_limit_room(name, running, coalesce(
            (SELECT full_at FROM job_limit_key WHERE key = name), now()));
        kept_for := (SELECT job_id FROM job_places_kept() WHERE key = name);
        is_shut := its.max_running IS NOT DISTINCT FROM 0;
        IF is_shut THEN
            said := format('The limit %s lets nothing of %s run.', its.key_pattern, name);
            RETURN NEXT;
        ELSIF room.places = 0 THEN
            said := format('The limit %s lets %s of %s run at once, and %s run: it waits for one of them to end.',
                           its.key_pattern, its.max_running, name, running);
            RETURN NEXT;
        ELSIF room.places = 1 AND NOT job.suspect AND kept_for IS NOT NULL THEN
            said := format('The limit %s lets %s of %s run at once, and the last place is kept for job %s, which runs next.',
                           its.key_pattern, its.max_running, name, kept_for);
            RETURN NEXT;
        ELSIF room.tokens = 0 THEN
            said := format('The limit %s lets %s of %s start a second, after a burst of %s: the next one may start in %s.',
                           its.key_pattern, its.rate, name, its.burst, job_span(make_interval(secs => room.next_token_in)));
            RETURN NEXT;
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM explain_memory_of_job(job);
END $$;
COMMENT ON FUNCTION public.explain_limits_of_job(job public.snap_processing_job, OUT said text, OUT is_shut boolean) IS 'Which limits, and which want of memory, hold back a job that waits; see explain_job(id).';
CREATE FUNCTION public.explain_memory_of_job(job public.snap_processing_job, OUT said text, OUT is_shut boolean) RETURNS SETOF record
    LANGUAGE sql STABLE
    AS $$
    SELECT format('Worker %s holds its kind back, as of %s ago: %s.', name, job_span(clock_timestamp() - beat_at), why),
           everywhere
      FROM (SELECT name, beat_at, held_kinds ->> job.kind AS why, bool_and(held_kinds ? job.kind) OVER () AS everywhere
              FROM job_worker
             WHERE expires_at > clock_timestamp() AND status = 'ACTIVE' AND job.kind = ANY (kinds)
               AND (queues = '{}' OR job.queue = ANY (queues))) AS worker
     WHERE why IS NOT NULL
     ORDER BY name
$$;
COMMENT ON FUNCTION public.explain_memory_of_job(job public.snap_processing_job, OUT said text, OUT is_shut boolean) IS 'Which workers hold back a job for want of memory; see explain_job(id).';
CREATE FUNCTION public.explain_place_of_job(job public.snap_processing_job) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    most CONSTANT integer := 10000;
    most_lanes CONSTANT integer := 1000;
    take_turns CONSTANT boolean := EXISTS (SELECT FROM job_limit) OR EXISTS (SELECT FROM job_queue WHERE fair);
    above bigint;   -- due, of its kind and queue, with a higher priority
    beside bigint;  -- likewise with its priority, in lanes that are visited before its own
    before bigint;  -- likewise in its own lane
    lanes text[];   -- those besides its own, where they take turns
    rivals bigint;  -- likewise, with something due
    is_more boolean;
    ahead bigint;
    head bigint;
    ended bigint;
    per_second double precision;
BEGIN
    SELECT count(*) FILTER (WHERE next_retry_at <= clock_timestamp()) INTO above FROM (
        SELECT next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
           AND queue = job.queue AND kind = job.kind AND priority > job.priority LIMIT most + 1) AS higher;
    SELECT count(*), min(id) INTO before, head FROM (
        SELECT id FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
           AND queue = job.queue AND kind = job.kind AND priority = job.priority AND lane = job.lane
           AND (next_retry_at, id) < (job.next_retry_at, job.id)
         ORDER BY next_retry_at, id LIMIT most + 1) AS earlier;
    IF take_turns THEN
        WITH RECURSIVE walk AS (
            (SELECT lane FROM snap_processing_job
              WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
                AND queue = job.queue AND kind = job.kind AND priority = job.priority
              ORDER BY lane LIMIT 1)
          UNION ALL
            SELECT next.lane FROM walk CROSS JOIN LATERAL (
                SELECT other.lane FROM snap_processing_job AS other
                 WHERE other.status IN ('PENDING', 'RETRY_WAIT') AND NOT other.suspect
                   AND other.queue = job.queue AND other.kind = job.kind AND other.priority = job.priority
                   AND other.lane > walk.lane
                 ORDER BY other.lane LIMIT 1) AS next
        )
        SELECT array_agg(lane) INTO lanes FROM (SELECT lane FROM walk LIMIT most_lanes) AS each WHERE lane <> job.lane;
        -- each of them has as many turns as this one until the job is reached
        SELECT coalesce(sum(due.jobs), 0), count(*) FILTER (WHERE due.jobs > 0) INTO beside, rivals
          FROM unnest(lanes) AS its (lane)
         CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                SELECT FROM snap_processing_job AS other
                 WHERE other.status IN ('PENDING', 'RETRY_WAIT') AND NOT other.suspect
                   AND other.queue = job.queue AND other.kind = job.kind AND other.priority = job.priority
                   AND other.lane = its.lane AND other.next_retry_at <= clock_timestamp()
                 ORDER BY other.next_retry_at, other.id
                 LIMIT least(before + 1, most / greatest(1, cardinality(lanes)) + 1)) AS seen) AS due;
        is_more := greatest(before, above) > most OR cardinality(lanes) >= most_lanes - 1
                   OR before > most / greatest(1, coalesce(cardinality(lanes), 0));
    ELSE
        SELECT count(*) FILTER (WHERE next_retry_at <= clock_timestamp()) INTO beside FROM (
            SELECT next_retry_at FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
               AND queue = job.queue AND kind = job.kind AND priority = job.priority AND lane < job.lane
             LIMIT most + 1) AS others;
        is_more := greatest(before, beside, above) > most;
    END IF;
    ahead := above + beside + before;
    IF ahead = 0 THEN
        RETURN NEXT 'Nobody of its kind stands before it: it is next.';
        RETURN;
    END IF;
    IF take_turns THEN
        RETURN NEXT format('Lanes take turns: it is number %s of its own%s, beside %s others with work; so %s of its kind'
                           || ' run before it, %s of them of a higher priority.',
            CASE WHEN before > most THEN 'more than ' || most ELSE (before + 1)::text END,
            ' (' || nullif(job.lane, '') || ')', CASE WHEN cardinality(lanes) >= most_lanes - 1 THEN 'at least ' ELSE '' END || rivals,
            CASE WHEN is_more THEN 'more than ' || least(ahead, most) ELSE 'up to ' || ahead END,
            CASE WHEN above > most THEN 'more than ' || most ELSE above::text END);
    ELSE
        RETURN NEXT format('%s of its kind stand before it: %s in its lane, %s in lanes that come first, %s of a higher priority.',
            CASE WHEN is_more THEN 'More than ' || most ELSE ahead::text END,
            CASE WHEN before > most THEN 'more than ' || most ELSE before::text END,
            CASE WHEN beside > most THEN 'more than ' || most ELSE beside::text END,
            CASE WHEN above > most THEN 'more than ' || most ELSE above::text END);
    END IF;
    -- what ended lately stands, by id, just before what runs next: no need to look at the whole table
    SELECT count(*), count(*) / greatest(1, extract(epoch FROM clock_timestamp() - min(finished_at)))
      INTO ended, per_second
      FROM (SELECT kind, finished_at FROM snap_processing_job
             WHERE id < coalesce(head, job.id) ORDER BY id DESC LIMIT most) AS lately
     WHERE lately.kind = job.kind AND finished_at > clock_timestamp() - interval '10 minutes';
    IF ended < 5 THEN
        RETURN NEXT 'When its turn comes is unknown: hardly any of its kind ended in the last 10 minutes.';
    ELSE
        RETURN NEXT format('Its turn comes in %s %s, at %s a second as in the last 10 minutes.',
            CASE WHEN is_more THEN 'more than' ELSE 'about' END,
            job_span(make_interval(secs => ahead / per_second)), round(per_second::numeric, 1));
    END IF;
END $$;
COMMENT ON FUNCTION public.explain_place_of_job(job public.snap_processing_job) IS 'Who stands before a job that is due, and when its turn comes; see explain_job(id).';
CREATE FUNCTION public.explain_waiting_job(job public.snap_processing_job) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    is_due boolean := job.next_retry_at <= clock;
    is_held boolean := false;
    seen record;
BEGIN
    IF job.status = 'RETRY_WAIT' AND job.last_error IS NOT NULL THEN  -- else it was replaced: that was another payload
        RETURN NEXT format('Attempt %s of %s failed: %s', coalesce(job.errors->-1->>'attempt', job.attempt_count::text),
                           job.max_attempts, left(split_part(job.last_error, chr(10), 1), 300));
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
COMMENT ON FUNCTION public.explain_waiting_job(job public.snap_processing_job) IS 'What holds back a job that waits; explain_job(id) is what people call.';
CREATE FUNCTION public.explain_workers_of_job(job public.snap_processing_job, OUT said text, OUT is_held boolean) RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    seen record;
BEGIN
    is_held := false;
    SELECT count(*) AS alive,
           count(*) FILTER (WHERE job.kind = ANY (kinds)) AS knowing,
           count(*) FILTER (WHERE serves) AS serving,
           count(*) FILTER (WHERE takes) AS taking,
           sum(its_slots) FILTER (WHERE takes) AS slots,
           sum(least(its_slots, busy)) FILTER (WHERE takes) AS busy,
           bool_and(cardinality(current_jobs) = 0) FILTER (WHERE takes) AS are_idle,
           count(*) FILTER (WHERE takes AND alone IS NOT NULL) AS occupied,
           string_agg(name || ' runs job ' || alone, ', ') FILTER (WHERE takes AND alone IS NOT NULL) AS alone,
           string_agg(DISTINCT name || ' says: ' || note, '; ') FILTER (WHERE serves AND note IS NOT NULL) AS notes
      INTO seen
      FROM (SELECT *, job.kind = ANY (kinds) AND (queues = '{}' OR job.queue = ANY (queues)) AS serves
              FROM job_worker WHERE expires_at > clock) AS worker
     CROSS JOIN LATERAL (SELECT serves AND status = 'ACTIVE' AS takes) AS now_taking
      LEFT JOIN LATERAL (
        SELECT value FROM jsonb_each(rooms) WHERE value->'kinds' ? job.kind LIMIT 1) AS room ON serves
     CROSS JOIN LATERAL (
        SELECT coalesce((room.value->>'slots')::integer, slots) AS its_slots,
               CASE WHEN room.value IS NULL THEN cardinality(current_jobs)
                    ELSE (SELECT count(*) FROM snap_processing_job AS other
                           WHERE other.status = 'RUNNING' AND other.claimed_by = worker.id
                             AND room.value->'kinds' ? other.kind) END AS busy,
               -- in a child of its own a suspect is alone without keeping anybody away, unless it needs the memory
               (SELECT min(other.id) FROM snap_processing_job AS other
                 WHERE other.status = 'RUNNING' AND other.suspect AND other.claimed_by = worker.id
                   AND (other.memory_mb IS NOT NULL OR NOT coalesce(rooms#>'{process,kinds}' ? other.kind, false))
               ) AS alone) AS load;
    IF seen.taking = 0 THEN
        is_held := true;
        IF seen.alive = 0 THEN
            said := 'No worker is alive.';
        ELSIF seen.knowing = 0 THEN
            said := format('No worker that is alive knows the kind %s; they know: %s.', job.kind, (
                SELECT left(coalesce(string_agg(DISTINCT kind, ', '), 'none at all'), 300)
                  FROM job_worker CROSS JOIN unnest(kinds) AS kind WHERE expires_at > clock));
        ELSIF seen.serving = 0 THEN
            said := format('The workers that know the kind %s do not work the queue %s, but: %s.', job.kind, job.queue, (
                SELECT left(string_agg(DISTINCT queue, ', '), 300) FROM job_worker CROSS JOIN unnest(queues) AS queue
                 WHERE expires_at > clock AND job.kind = ANY (kinds)));
        ELSE
            said := format('Every worker that knows the kind %s is stopping.', job.kind);
        END IF;
        RETURN NEXT;
        said := coalesce(
            (SELECT format('Last heard of one that knows it: %s, %s ago.', name, job_span(clock - beat_at))
               FROM job_worker WHERE expires_at <= clock AND job.kind = ANY (kinds) ORDER BY beat_at DESC LIMIT 1),
            (SELECT format('The last worker to leave was %s, %s ago: %s.', name, job_span(clock - exited_at), reason)
               FROM job_worker_exit ORDER BY id DESC LIMIT 1),
            'No worker has been seen yet.');
    ELSIF job.suspect THEN
        is_held := true;
        said := CASE WHEN job.memory_mb IS NULL THEN 'It ran when its worker died, so it runs next with nothing beside it: '
                     ELSE format('It ran short of memory, so it runs next with %s MB and nothing beside it: ', job.memory_mb)
                END
            || CASE WHEN seen.are_idle THEN 'a worker takes it as soon as it looks.'
                    ELSE 'a worker takes it when its other jobs have ended.' END;
    ELSIF seen.occupied = seen.taking THEN
        is_held := true;
        said := format('%s, which must run with nothing beside it: until that ends nothing else begins.',
                       seen.alone);
    ELSIF seen.busy >= seen.slots THEN
        said := format('All %s slots of the workers that know its kind are busy.', seen.slots);
    ELSE
        said := format('Workers that know its kind: %s, with %s of %s slots busy.', seen.taking, seen.busy, seen.slots);
    END IF;
    RETURN NEXT;
    IF seen.notes IS NOT NULL THEN
        said := seen.notes || '.';
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION public.explain_workers_of_job(job public.snap_processing_job, OUT said text, OUT is_held boolean) IS 'Which workers could take a job that waits, and what keeps them; see explain_job(id).';
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
CREATE FUNCTION public.job_holder(its_kind text, its_tenant text, its_key text, scope text) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT job.id FROM snap_processing_job AS job
     WHERE job.kind = its_kind AND job.tenant = its_tenant AND job.unique_key = its_key
       AND (   (scope = 'waiting' AND job.unique_scope = 'waiting' AND job.status = 'PENDING' AND job.lease_seq = 0)
            OR (scope = 'live' AND job.unique_scope = 'live' AND job.status IN ('PENDING', 'RETRY_WAIT', 'RUNNING'))
            OR (scope = 'ever' AND job.unique_scope = 'ever'))
$$;
COMMENT ON FUNCTION public.job_holder(its_kind text, its_tenant text, its_key text, scope text) IS 'The job that holds a unique key in a scope; see enqueue_job.';
CREATE FUNCTION public.job_limit_of(its_key text) RETURNS TABLE(key_pattern text, max_running integer, rate double precision, burst integer)
    LANGUAGE sql STABLE
    AS $$
    SELECT * FROM (
        SELECT key_pattern, max_running, rate, coalesce(burst, greatest(1, ceil(rate))::integer)
          FROM job_limit WHERE key_pattern = its_key
      UNION ALL
        (SELECT key_pattern, max_running, rate, coalesce(burst, greatest(1, ceil(rate))::integer)
           FROM job_limit WHERE right(key_pattern, 1) = '*' AND starts_with(its_key, left(key_pattern, -1))
          ORDER BY length(key_pattern) DESC LIMIT 1)) AS fitting
     LIMIT 1
$$;
COMMENT ON FUNCTION public.job_limit_of(its_key text) IS 'The limit that rules a key such as queue:media or key:camera:7, if any.';
CREATE FUNCTION public.job_limit_room(its_key text, running bigint, full_at timestamp with time zone, OUT places bigint, OUT tokens bigint, OUT next_token_in double precision) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN max_running IS NOT NULL THEN greatest(0, max_running - running) END,  -- greatest() skips nulls
           CASE WHEN left_over IS NOT NULL THEN greatest(0, floor(left_over + 1e-9)) END::bigint,
           greatest(0, 1 - left_over) / rate
      FROM (SELECT *, burst - rate * greatest(0, extract(epoch FROM full_at - clock_timestamp())::float8) AS left_over
              FROM job_limit_of(its_key)) AS its
$$;
COMMENT ON FUNCTION public.job_limit_room(its_key text, running bigint, full_at timestamp with time zone, OUT places bigint, OUT tokens bigint, OUT next_token_in double precision) IS 'What a key may still start now, given how many of it run and when its bucket is full.';
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
CREATE FUNCTION public.job_next_due_in(kinds text[], queues text[] DEFAULT NULL::text[]) RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN due IS NOT NULL THEN extract(epoch FROM
               greatest(clock - interval '1 day', least(clock + interval '1 day', due)) - clock)::float8 END
      FROM (SELECT job_next_due(kinds, queues) AS due, clock_timestamp() AS clock) AS its
$$;
COMMENT ON FUNCTION public.job_next_due_in(kinds text[], queues text[]) IS 'Seconds until the next waiting job of these kinds is due, at most a day; the workers ask it to know how long they may sleep.';
CREATE FUNCTION public.job_percentiles(amounts double precision[], weights integer[], OUT p50 double precision, OUT p95 double precision, OUT p99 double precision) RETURNS record
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT min(amount) FILTER (WHERE part >= 0.50), min(amount) FILTER (WHERE part >= 0.95),
           min(amount) FILTER (WHERE part >= 0.99)
      FROM (SELECT amount, sum(weight) OVER (ORDER BY amount ROWS UNBOUNDED PRECEDING) / sum(weight) OVER () AS part
              FROM unnest(amounts, weights::double precision[]) AS it (amount, weight)
             WHERE amount IS NOT NULL) AS ranked
$$;
COMMENT ON FUNCTION public.job_percentiles(amounts double precision[], weights integer[], OUT p50 double precision, OUT p95 double precision, OUT p99 double precision) IS 'The 50th, 95th and 99th percentile of amounts that stand for several each.';
CREATE FUNCTION public.job_places_kept(kinds text[] DEFAULT NULL::text[], queues text[] DEFAULT NULL::text[]) RETURNS TABLE(key text, job_id bigint)
    LANGUAGE sql STABLE
    AS $$
    SELECT its.key, min(job.id) FROM snap_processing_job AS job
     CROSS JOIN LATERAL (SELECT ARRAY['queue:' || job.queue, 'key:' || nullif(job.lane, '')] AS keys) AS of_job
     CROSS JOIN LATERAL unnest(of_job.keys) AS its (key)
     WHERE job.suspect AND job.status IN ('PENDING', 'RETRY_WAIT') AND job.next_retry_at <= now()
       AND (kinds IS NULL OR job.kind = ANY (kinds)) AND (queues IS NULL OR job.queue = ANY (queues))
       AND NOT EXISTS (SELECT FROM job_queue WHERE name = job.queue AND paused_at IS NOT NULL)
       AND NOT EXISTS (
        SELECT FROM unnest(of_job.keys) AS each (key)
          LEFT JOIN job_limit_key AS held ON held.key = each.key
         CROSS JOIN LATERAL job_limit_room(each.key, (
            SELECT count(*) FROM snap_processing_job AS other
             WHERE other.status = 'RUNNING' AND each.key IN ('queue:' || other.queue, 'key:' || other.lane)),
            coalesce(held.full_at, now())) AS room
         WHERE 0 IN (room.places, room.tokens))
     GROUP BY its.key
$$;
COMMENT ON FUNCTION public.job_places_kept(kinds text[], queues text[]) IS 'Keys with a limit that keep a place for a suspect, which runs next with nothing beside it.';
CREATE FUNCTION public.job_rules_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('snapapp_job', '');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION public.job_rules_changed() IS 'Wakes the workers when limits or fair queues change.';
CREATE FUNCTION public.job_span(span interval) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN seconds < 1 THEN round(seconds * 1000) || ' ms'
                WHEN seconds < 120 THEN floor(seconds) || ' s'
                WHEN seconds < 7200 THEN floor(seconds / 60) || ' min'
                WHEN seconds < 172800 THEN floor(seconds / 3600) || ' h'
                ELSE floor(seconds / 86400) || ' days' END
      FROM (SELECT abs(extract(epoch FROM span)) AS seconds) AS length
$$;
COMMENT ON FUNCTION public.job_span(span interval) IS 'A duration in words, as explain_job(id) says it.';
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
CREATE FUNCTION public.pause_queue(name text, reason text DEFAULT NULL::text, by text DEFAULT NULL::text) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO job_queue AS q (name, paused_at, paused_reason, paused_by)
    VALUES (pause_queue.name, now(), reason, coalesce(pause_queue.by, session_user))
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, now()), paused_reason = excluded.paused_reason,
        paused_by = excluded.paused_by
$$;
COMMENT ON FUNCTION public.pause_queue(name text, reason text, by text) IS 'Lets no worker claim from a queue: SELECT pause_queue(''mail'', ''the server is away''). What runs goes on.';
CREATE FUNCTION public.pause_schedule(name text, reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE job_schedule
       SET paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = reason
     WHERE job_schedule.name = pause_schedule.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
END $$;
COMMENT ON FUNCTION public.pause_schedule(name text, reason text) IS 'Its slots are skipped, with this reason in the ledger, until resume_schedule(name).';
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
    UPDATE job_queue SET paused_at = NULL, paused_reason = NULL, paused_by = NULL WHERE job_queue.name = resume_queue.name;
    SELECT pg_notify('snapapp_job', resume_queue.name);
$$;
COMMENT ON FUNCTION public.resume_queue(name text) IS 'The opposite of pause_queue.';
CREATE FUNCTION public.resume_schedule(name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- the range is kept, because slots within it may not have been looked at yet: they too were paused
    UPDATE job_schedule
       SET last_pause = CASE WHEN paused_at IS NULL THEN last_pause
                             ELSE tstzrange(paused_at, greatest(paused_at, clock_timestamp()), '[]') END,
           paused_at = NULL, paused_reason = NULL
     WHERE job_schedule.name = resume_schedule.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
END $$;
COMMENT ON FUNCTION public.resume_schedule(name text) IS 'The opposite of pause_schedule. Slots that passed meanwhile are not made up for.';
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
           memory_mb = NULL, next_retry_at = now(), cancel_requested_at = NULL, started_at = NULL, finished_at = NULL
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
CREATE FUNCTION public.run_schedule(name text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    its job_schedule;
    moment timestamptz;
    new_job bigint;
BEGIN
    SELECT * INTO its FROM job_schedule WHERE job_schedule.name = run_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
    moment := clock_timestamp();
    new_job := enqueue_scheduled_job(its, moment);
    INSERT INTO job_schedule_slot (schedule, slot, outcome, why, job_id)
    VALUES (its.name, moment, 'fired', 'a person wanted it now', new_job);
    RETURN new_job;
END $$;
COMMENT ON FUNCTION public.run_schedule(name text) IS 'Enqueues its job now, besides its slots and even while it is paused; returns the job''s id.';
CREATE FUNCTION public.snap_ends_with_its_job() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    outside CONSTANT text := coalesce(current_setting('snapapp.tenant', true), '');
BEGIN
    PERFORM set_config('snapapp.tenant', NEW.tenant, true);
    UPDATE snap
       SET ended = NEW.status, processed_at = NEW.finished_at, updated_at = now(),
           error = CASE NEW.status WHEN 'FAILED' THEN coalesce(NEW.last_error, 'Failed without a reason')
                                   ELSE 'Cancelled' || coalesce(' by ' || cancelled_by, '') END
     WHERE tenant = NEW.tenant AND id = NEW.snap_id AND ended IS NULL
       AND NOT EXISTS (SELECT FROM snap_processing_job AS newer WHERE newer.snap_id = NEW.snap_id
                          AND newer.kind = NEW.kind AND newer.id > NEW.id);
    PERFORM set_config('snapapp.tenant', outside, true);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION public.snap_ends_with_its_job() IS 'Copies how a job FAILED or was CANCELLED to its snap, unless the snap has evidence already.';
CREATE FUNCTION public.snap_waits_with_its_job() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    outside CONSTANT text := coalesce(current_setting('snapapp.tenant', true), '');
BEGIN
    PERFORM set_config('snapapp.tenant', NEW.tenant, true);
    UPDATE snap SET ended = NULL, error = NULL, cancelled_by = NULL, processed_at = NULL, updated_at = now()
     WHERE tenant = NEW.tenant AND id = NEW.snap_id AND ended IN ('FAILED', 'CANCELLED');
    PERFORM set_config('snapapp.tenant', outside, true);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION public.snap_waits_with_its_job() IS 'A snap whose job is retried or replayed waits again.';
CREATE FUNCTION public.tenant_begins_with_templates() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    outside CONSTANT text := coalesce(current_setting('snapapp.tenant', true), '');
BEGIN
    PERFORM set_config('snapapp.tenant', NEW.code, true);
    INSERT INTO template (tenant, slug, name, is_default, fields) VALUES
        (NEW.code, 'default', 'Default', true, '[
            {"key": "id", "type": "string", "required": false, "order": 1},
            {"key": "observacoes", "type": "string", "required": false, "order": 2}]'),
        (NEW.code, 'gado', 'Gado', false, '[
            {"key": "brinco", "type": "string", "required": true, "order": 1},
            {"key": "raca", "type": "string", "required": false, "order": 2},
            {"key": "sexo", "type": "string", "required": false, "order": 3},
            {"key": "peso_referencia", "type": "number", "required": false, "order": 4},
            {"key": "condicao_corporal", "type": "string", "required": false, "order": 5},
            {"key": "lote", "type": "string", "required": false, "order": 6},
            {"key": "pasto", "type": "string", "required": false, "order": 7},
            {"key": "observacoes", "type": "string", "required": false, "order": 8}]');
    PERFORM set_config('snapapp.tenant', outside, true);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION public.tenant_begins_with_templates() IS 'Gives a new tenant the templates default and gado.';
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.job_command (
    id bigint NOT NULL,
    host text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL,
    pool text,
    amount integer,
    reason text,
    source text DEFAULT 'sql'::text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    output text,
    master text COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone DEFAULT (now() + '00:01:00'::interval) NOT NULL,
    taken_at timestamp with time zone,
    finished_at timestamp with time zone,
    CONSTRAINT ended_means_finished CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['EXECUTED'::text, 'FAILED'::text, 'EXPIRED'::text])))),
    CONSTRAINT job_command_output_check CHECK ((length(output) <= 4000)),
    CONSTRAINT job_command_reason_check CHECK ((length(reason) <= 500)),
    CONSTRAINT job_command_source_check CHECK ((source = ANY (ARRAY['sql'::text, 'cli'::text, 'api'::text, 'autoscaler'::text]))),
    CONSTRAINT job_command_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'TAKEN'::text, 'EXECUTED'::text, 'FAILED'::text, 'EXPIRED'::text]))),
    CONSTRAINT taken_means_by_a_master CHECK (((status <> ALL (ARRAY['TAKEN'::text, 'EXECUTED'::text])) OR (num_nonnulls(master, taken_at) = 2)))
);
COMMENT ON TABLE public.job_command IS 'What supervisors were told, and what came of it; SELECT command_fleet(''pause'', ''mail-supervisor'') tells one.';
COMMENT ON COLUMN public.job_command.pool IS 'Which pool; null: all pools of the host.';
COMMENT ON COLUMN public.job_command.amount IS 'Of scale: how many processes; null gives the decision back to the pool''s balance.';
COMMENT ON COLUMN public.job_command.status IS 'PENDING, TAKEN (by the master that stands in it), EXECUTED, FAILED or EXPIRED; each is executed at most once.';
COMMENT ON COLUMN public.job_command.output IS 'What came of it, in words.';
COMMENT ON COLUMN public.job_command.expires_at IS 'Nobody takes it after this.';
CREATE TABLE public.job_master (
    host text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    machine text NOT NULL,
    pid integer NOT NULL,
    pid_started bigint NOT NULL,
    status text DEFAULT 'ACTIVE'::text NOT NULL,
    note text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    beat_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT job_master_host_check CHECK (((length(host) >= 1) AND (length(host) <= 200))),
    CONSTRAINT job_master_status_check CHECK ((status = ANY (ARRAY['ACTIVE'::text, 'STOPPING'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
COMMENT ON TABLE public.job_master IS 'The supervisors: one a host; `snapapp supervisor` is such a process.';
COMMENT ON COLUMN public.job_master.host IS 'The name of its host, by which it is told things.';
COMMENT ON COLUMN public.job_master.id IS 'Fresh at every start.';
COMMENT ON COLUMN public.job_master.machine IS 'Boot id and process namespace: on the same one, a dead pid is known to be dead.';
COMMENT ON COLUMN public.job_master.pid_started IS 'When its process started, in the kernel''s ticks: a reused pid is not mistaken for it.';
COMMENT ON COLUMN public.job_master.note IS 'What a person should know about it.';
COMMENT ON COLUMN public.job_master.expires_at IS 'Taken for lost after this, if no heartbeat comes.';
CREATE VIEW public.command_overview AS
 SELECT command.id,
    command.host,
    command.action,
    command.pool,
    command.amount,
    command.reason,
    command.source,
        CASE
            WHEN ((command.status = 'PENDING'::text) AND (command.expires_at <= now())) THEN 'EXPIRED'::text
            ELSE command.status
        END AS status,
    COALESCE(command.output,
        CASE
            WHEN ((command.status = ANY (ARRAY['PENDING'::text, 'TAKEN'::text])) AND COALESCE((master.expires_at < now()), true)) THEN ((('the host '::text || command.host) || ' does not answer'::text) || COALESCE(((': last heard of '::text || public.job_span((now() - master.beat_at))) || ' ago'::text), ''::text))
            WHEN ((command.status = 'PENDING'::text) AND (command.expires_at <= now())) THEN 'nobody took it in time'::text
            ELSE NULL::text
        END) AS output,
    command.created_at,
    command.expires_at,
    command.taken_at,
    command.finished_at
   FROM (public.job_command command
     LEFT JOIN public.job_master master USING (host));
COMMENT ON VIEW public.command_overview IS 'What supervisors were told; says so when a host does not answer.';
CREATE TABLE public.correction (
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    snap_id uuid NOT NULL,
    by text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    before jsonb NOT NULL,
    after jsonb NOT NULL,
    CONSTRAINT by_is_short CHECK (((length(by) >= 1) AND (length(by) <= 320)))
);
ALTER TABLE ONLY public.correction FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.correction IS 'How subjects were corrected before they were shared; nothing here is ever changed.';
COMMENT ON COLUMN public.correction.id IS 'Identity.';
COMMENT ON COLUMN public.correction.tenant IS 'Whose.';
COMMENT ON COLUMN public.correction.snap_id IS 'Of which snap.';
COMMENT ON COLUMN public.correction.by IS 'Who corrected it.';
COMMENT ON COLUMN public.correction.at IS 'When.';
COMMENT ON COLUMN public.correction.before IS 'The subject before.';
COMMENT ON COLUMN public.correction.after IS 'The subject after.';
ALTER TABLE public.correction ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.correction_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.job_pool (
    host text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    queues text[] NOT NULL,
    balance text NOT NULL,
    min_processes integer NOT NULL,
    max_processes integer NOT NULL,
    state text DEFAULT 'ACTIVE'::text NOT NULL,
    state_reason text,
    fixed_at integer,
    wanted integer DEFAULT 0 NOT NULL,
    present integer DEFAULT 0 NOT NULL,
    leaving integer DEFAULT 0 NOT NULL,
    note text,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT job_pool_balance_check CHECK ((balance = ANY (ARRAY['off'::text, 'simple'::text, 'auto'::text]))),
    CONSTRAINT job_pool_fixed_at_check CHECK ((fixed_at >= 0)),
    CONSTRAINT job_pool_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT job_pool_state_check CHECK ((state = ANY (ARRAY['ACTIVE'::text, 'PAUSED'::text, 'DRAINED'::text]))),
    CONSTRAINT pool_bounds_are_sane CHECK (((min_processes >= 0) AND (max_processes >= GREATEST(1, min_processes))))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
COMMENT ON TABLE public.job_pool IS 'The pools of every host: what was planned, what a person changed, and how it stands as of seen_at.';
COMMENT ON COLUMN public.job_pool.queues IS 'The queues it works; none named: all of them.';
COMMENT ON COLUMN public.job_pool.balance IS 'off (always max_processes), simple (by what waits) or auto.';
COMMENT ON COLUMN public.job_pool.state IS 'ACTIVE, PAUSED (its workers live and claim nothing) or DRAINED (it has none).';
COMMENT ON COLUMN public.job_pool.state_reason IS 'Why somebody paused or drained it.';
COMMENT ON COLUMN public.job_pool.fixed_at IS 'A person fixed it at so many processes; null: balance decides.';
COMMENT ON COLUMN public.job_pool.wanted IS 'How many processes it should have now.';
COMMENT ON COLUMN public.job_pool.present IS 'How many it has that do not leave.';
COMMENT ON COLUMN public.job_pool.leaving IS 'How many are finishing their last jobs.';
COMMENT ON COLUMN public.job_pool.note IS 'What holds it back, if anything does.';
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
    free_mb integer,
    held_kinds jsonb DEFAULT '{}'::jsonb NOT NULL,
    rooms jsonb DEFAULT '{}'::jsonb NOT NULL,
    context_switches bigint DEFAULT 0 NOT NULL,
    context_failures bigint DEFAULT 0 NOT NULL,
    pool text,
    master text COLLATE pg_catalog."C",
    max_jobs integer,
    max_seconds integer,
    max_memory_mb integer,
    CONSTRAINT job_worker_status_check CHECK ((status = ANY (ARRAY['ACTIVE'::text, 'DRAINING'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
COMMENT ON TABLE public.job_worker IS 'The roster: every process that works the queue, as of its last heartbeat.';
COMMENT ON COLUMN public.job_worker.machine IS 'Boot id and process namespace: on the same one, a dead pid is known to be dead.';
COMMENT ON COLUMN public.job_worker.note IS 'What holds it back, if anything does.';
COMMENT ON COLUMN public.job_worker.traces IS 'The file in which the process marks what it is running, read by whoever finds it dead.';
COMMENT ON COLUMN public.job_worker.free_mb IS 'Memory that jobs may still take, as of the last beat, the reserve left out; null: cannot be known here.';
COMMENT ON COLUMN public.job_worker.held_kinds IS 'Kinds that it does not claim for want of memory, each with the reason.';
COMMENT ON COLUMN public.job_worker.rooms IS 'Where jobs run in it: thread, async, process, command, each with its slots and kinds.';
COMMENT ON COLUMN public.job_worker.context_switches IS 'How often the application''s context (its tenant) was entered for a job, hooks included.';
COMMENT ON COLUMN public.job_worker.context_failures IS 'How often that failed; the attempt then fails with ContextFailed.';
COMMENT ON COLUMN public.job_worker.pool IS 'The pool it belongs to; null: it was started by itself.';
COMMENT ON COLUMN public.job_worker.master IS 'The supervisor that started it (job_master.id).';
COMMENT ON COLUMN public.job_worker.max_jobs IS 'After so many jobs it is replaced, between two jobs; null: never for that.';
COMMENT ON COLUMN public.job_worker.max_seconds IS 'Likewise after so long.';
COMMENT ON COLUMN public.job_worker.max_memory_mb IS 'Likewise when it is bigger than this.';
CREATE VIEW public.fleet_overview AS
 SELECT master.host,
        CASE
            WHEN (master.expires_at < now()) THEN 'LOST'::text
            ELSE master.status
        END AS master,
    pool.name AS pool,
    pool.state,
    pool.state_reason,
    pool.queues,
    pool.balance,
    pool.fixed_at,
    pool.min_processes,
    pool.max_processes,
    pool.wanted,
    pool.present,
    pool.leaving,
    workers.slots,
    workers.running,
    workers.memory_mb,
    workers.jobs_completed,
    workers.jobs_failed,
    COALESCE(pool.note, master.note) AS note,
    master.pid,
    master.started_at,
    master.beat_at
   FROM ((public.job_master master
     LEFT JOIN public.job_pool pool USING (host))
     LEFT JOIN LATERAL ( SELECT sum(job_worker.slots) AS slots,
            sum(cardinality(job_worker.current_jobs)) AS running,
            sum(job_worker.memory_mb) AS memory_mb,
            sum(job_worker.jobs_completed) AS jobs_completed,
            sum(job_worker.jobs_failed) AS jobs_failed
           FROM public.job_worker
          WHERE ((job_worker.host = master.host) AND (job_worker.pool = pool.name) AND (job_worker.expires_at > now()))) workers ON (true))
  ORDER BY master.host, pool.name;
COMMENT ON VIEW public.fleet_overview IS 'Every host with its pools; LOST means that its supervisor''s heartbeat stopped.';
CREATE TABLE public.idempotency (
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    body_hash bytea NOT NULL,
    snap_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT body_is_hashed CHECK ((octet_length(body_hash) = 32)),
    CONSTRAINT key_is_short CHECK (((length(key) >= 1) AND (length(key) <= 200)))
);
ALTER TABLE ONLY public.idempotency FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.idempotency IS 'Idempotency keys of the last 24 hours, and the snaps that they made.';
COMMENT ON COLUMN public.idempotency.tenant IS 'Whose.';
COMMENT ON COLUMN public.idempotency.key IS 'As sent.';
COMMENT ON COLUMN public.idempotency.body_hash IS 'SHA-256 of the request: another one with this key is refused.';
COMMENT ON COLUMN public.idempotency.snap_id IS 'What it made.';
COMMENT ON COLUMN public.idempotency.created_at IS 'When.';
ALTER TABLE public.job_command ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_command_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.job_cost (
    job_id bigint NOT NULL,
    lease_seq bigint NOT NULL,
    attempt integer NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    wait_ms double precision,
    wall_ms double precision NOT NULL,
    cpu_ms double precision,
    peak_mb double precision,
    stands_for integer DEFAULT 1 NOT NULL,
    CONSTRAINT job_cost_stands_for_check CHECK ((stands_for > 0))
);
COMMENT ON TABLE public.job_cost IS 'What attempts cost: SELECT * FROM job_cost WHERE job_id = 42. The view kind_costs has percentiles. Rows go with their jobs.';
COMMENT ON COLUMN public.job_cost.job_id IS 'The job.';
COMMENT ON COLUMN public.job_cost.lease_seq IS 'Under which lease the attempt ran; attempts that were given back share their number, leases never do.';
COMMENT ON COLUMN public.job_cost.attempt IS 'Which attempt it was, as the row counted it then.';
COMMENT ON COLUMN public.job_cost.kind IS 'The job''s kind.';
COMMENT ON COLUMN public.job_cost.outcome IS 'The status that it led to; PENDING: handed back or snoozed; LEASE_LOST: its result was dropped.';
COMMENT ON COLUMN public.job_cost.started_at IS 'When it began to run.';
COMMENT ON COLUMN public.job_cost.wait_ms IS 'From when it was due to when it began.';
COMMENT ON COLUMN public.job_cost.wall_ms IS 'How long it ran, by the clock on the wall.';
COMMENT ON COLUMN public.job_cost.cpu_ms IS 'Processor time: of its thread; of its process or program with all that it started and waited for. Null: not known, as for async.';
COMMENT ON COLUMN public.job_cost.peak_mb IS 'The most memory that its process or program had resident; null for threads and async, who share theirs.';
COMMENT ON COLUMN public.job_cost.stands_for IS 'Of so many quick attempts this one was written down.';
CREATE TABLE public.job_limit (
    key_pattern text NOT NULL COLLATE pg_catalog."C",
    max_running integer,
    rate double precision,
    burst integer,
    CONSTRAINT burst_belongs_to_a_rate CHECK (((burst IS NULL) OR (rate IS NOT NULL))),
    CONSTRAINT job_limit_burst_check CHECK ((burst > 0)),
    CONSTRAINT job_limit_max_running_check CHECK ((max_running >= 0)),
    CONSTRAINT job_limit_rate_check CHECK ((rate > (0)::double precision)),
    CONSTRAINT key_pattern_says_of_what CHECK (((key_pattern ~ '^(queue|key):.'::text) AND (length(key_pattern) <= 600))),
    CONSTRAINT limit_says_how_much CHECK ((num_nonnulls(max_running, rate) > 0)),
    CONSTRAINT rate_is_sane CHECK ((rate <= (1000000)::double precision))
);
COMMENT ON TABLE public.job_limit IS 'Limits: INSERT INTO job_limit VALUES (''key:camera:*'', 3). Each queue and key that fits the pattern has the limit for itself; the most specific pattern rules.';
COMMENT ON COLUMN public.job_limit.key_pattern IS 'queue:NAME, or key:KEY for a concurrency key (in a fair queue also for a tenant); a * at the end stands for anything.';
COMMENT ON COLUMN public.job_limit.max_running IS 'So many run at once, claimed ones included; 0 stops it, null does not limit it.';
COMMENT ON COLUMN public.job_limit.rate IS 'So many attempts start a second on average; null does not limit it.';
COMMENT ON COLUMN public.job_limit.burst IS 'So many may start at once after a rest; null: as many as the rate allows in a second, at least one.';
CREATE TABLE public.job_limit_key (
    key text NOT NULL COLLATE pg_catalog."C",
    full_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
COMMENT ON TABLE public.job_limit_key IS 'One row for each key a limit was found for: locked by the claim, and its token bucket. Rows come and go by themselves.';
COMMENT ON COLUMN public.job_limit_key.full_at IS 'When its token bucket is full again.';
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
    paused_reason text,
    paused_by text
);
COMMENT ON TABLE public.job_queue IS 'Queues that are paused or shared out fairly by tenant; a queue needs no row here to exist.';
COMMENT ON COLUMN public.job_queue.fair IS 'Lanes take turns, and a job without a concurrency key has its tenant for a lane (from when it is enqueued).';
COMMENT ON COLUMN public.job_queue.paused_by IS 'Who paused it, as they say; else the role of their session.';
CREATE TABLE public.job_scaling (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    host text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL COLLATE pg_catalog."C",
    balance text NOT NULL,
    present integer NOT NULL,
    wanted integer NOT NULL,
    reason text NOT NULL,
    inputs jsonb NOT NULL
);
COMMENT ON TABLE public.job_scaling IS 'Every decision of the autoscaler, with what it was made from.';
COMMENT ON COLUMN public.job_scaling.inputs IS 'What was measured: what is due, how fast it comes and goes, how long it takes, memory.';
ALTER TABLE public.job_scaling ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_scaling_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.job_schedule_slot (
    schedule text NOT NULL COLLATE pg_catalog."C",
    slot timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    why text,
    job_id bigint,
    worker text COLLATE pg_catalog."C",
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT fired_means_a_job CHECK (((job_id IS NOT NULL) = (outcome <> 'skipped'::text))),
    CONSTRAINT never_ahead_of_time CHECK ((slot <= recorded_at)),
    CONSTRAINT outcome_is_known CHECK ((outcome = ANY (ARRAY['fired'::text, 'late'::text, 'skipped'::text]))),
    CONSTRAINT skipped_says_why CHECK (((outcome <> 'skipped'::text) OR (why IS NOT NULL)))
);
COMMENT ON TABLE public.job_schedule_slot IS 'The ledger: what became of every slot of every schedule, and why. Kept for 90 days, at most the newest 10,000 of each.';
COMMENT ON COLUMN public.job_schedule_slot.schedule IS 'Whose slot it is.';
COMMENT ON COLUMN public.job_schedule_slot.slot IS 'When it was due; for a run that a person wanted, when that was.';
COMMENT ON COLUMN public.job_schedule_slot.outcome IS 'fired, late (fired, more than a minute after the slot) or skipped.';
COMMENT ON COLUMN public.job_schedule_slot.why IS 'The reason, for everything but a slot that fired in time.';
COMMENT ON COLUMN public.job_schedule_slot.job_id IS 'The job that it enqueued.';
COMMENT ON COLUMN public.job_schedule_slot.worker IS 'The worker (job_worker.id) that wrote this down; null: a person.';
COMMENT ON COLUMN public.job_schedule_slot.recorded_at IS 'When this was written down.';
CREATE TABLE public.job_tenant_switch (
    worker_id text NOT NULL COLLATE pg_catalog."C",
    from_tenant text NOT NULL COLLATE pg_catalog."C",
    to_tenant text NOT NULL COLLATE pg_catalog."C",
    switches bigint NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE public.job_tenant_switch IS 'How often each worker of a pool went from one tenant''s jobs to another''s, added up with its heartbeats; * stands for the rest.';
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
    exited_at timestamp with time zone DEFAULT now() NOT NULL,
    pool text
);
COMMENT ON TABLE public.job_worker_exit IS 'How each worker ended.';
COMMENT ON COLUMN public.job_worker_exit.pool IS 'The pool it belonged to.';
ALTER TABLE public.job_worker_exit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_worker_exit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW public.kind_costs AS
 WITH RECURSIVE known AS (
        ( SELECT job_cost.kind
           FROM public.job_cost
          ORDER BY job_cost.kind
         LIMIT 1)
        UNION ALL
         SELECT next.kind
           FROM (known known_1
             CROSS JOIN LATERAL ( SELECT job_cost.kind
                   FROM public.job_cost
                  WHERE (job_cost.kind > known_1.kind)
                  ORDER BY job_cost.kind
                 LIMIT 1) next)
        )
 SELECT known.kind,
    its.attempts,
    its.measured,
    its.since,
    wait.p50 AS wait_p50_ms,
    wait.p95 AS wait_p95_ms,
    wait.p99 AS wait_p99_ms,
    wall.p50 AS wall_p50_ms,
    wall.p95 AS wall_p95_ms,
    wall.p99 AS wall_p99_ms,
    cpu.p50 AS cpu_p50_ms,
    cpu.p95 AS cpu_p95_ms,
    cpu.p99 AS cpu_p99_ms,
    peak.p50 AS peak_p50_mb,
    peak.p95 AS peak_p95_mb,
    peak.p99 AS peak_p99_mb
   FROM (((((known
     CROSS JOIN LATERAL ( SELECT sum(newest.stands_for) AS attempts,
            count(*) AS measured,
            min(newest.started_at) AS since,
            array_agg(newest.stands_for) AS weights,
            array_agg(newest.wait_ms) AS waits,
            array_agg(newest.wall_ms) AS walls,
            array_agg(newest.cpu_ms) AS cpus,
            array_agg(newest.peak_mb) AS peaks
           FROM ( SELECT job_cost.job_id,
                    job_cost.lease_seq,
                    job_cost.attempt,
                    job_cost.kind,
                    job_cost.outcome,
                    job_cost.started_at,
                    job_cost.wait_ms,
                    job_cost.wall_ms,
                    job_cost.cpu_ms,
                    job_cost.peak_mb,
                    job_cost.stands_for
                   FROM public.job_cost
                  WHERE (job_cost.kind = known.kind)
                  ORDER BY job_cost.started_at DESC
                 LIMIT 1000) newest) its)
     CROSS JOIN LATERAL public.job_percentiles(its.waits, its.weights) wait(p50, p95, p99))
     CROSS JOIN LATERAL public.job_percentiles(its.walls, its.weights) wall(p50, p95, p99))
     CROSS JOIN LATERAL public.job_percentiles(its.cpus, its.weights) cpu(p50, p95, p99))
     CROSS JOIN LATERAL public.job_percentiles(its.peaks, its.weights) peak(p50, p95, p99))
  ORDER BY known.kind;
COMMENT ON VIEW public.kind_costs IS 'What attempts of each kind wait, take and need, in percentiles of the newest 1,000 rows of job_cost.';
CREATE VIEW public.limit_overview AS
SELECT
    NULL::text COLLATE pg_catalog."C" AS key_pattern,
    NULL::integer AS max_running,
    NULL::double precision AS rate,
    NULL::integer AS burst,
    NULL::bigint AS keys_running,
    NULL::bigint AS running,
    NULL::bigint AS keys_full;
COMMENT ON VIEW public.limit_overview IS 'Every limit, how many jobs run under it, and how many of its keys are full.';
CREATE TABLE public.operator (
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    email text NOT NULL,
    email_lower text GENERATED ALWAYS AS (lower(email)) STORED NOT NULL,
    nickname text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT names_are_short CHECK ((((length(email) >= 1) AND (length(email) <= 320)) AND ((length(nickname) >= 1) AND (length(nickname) <= 120))))
);
ALTER TABLE ONLY public.operator FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.operator IS 'Who marks moments, known by e-mail within a tenant.';
COMMENT ON COLUMN public.operator.id IS 'Identity.';
COMMENT ON COLUMN public.operator.tenant IS 'Whose.';
COMMENT ON COLUMN public.operator.email IS 'As last sent; its case does not matter.';
COMMENT ON COLUMN public.operator.email_lower IS 'email in lower case: one row for each of a tenant.';
COMMENT ON COLUMN public.operator.nickname IS 'As last sent; each snap keeps the one it was marked under.';
COMMENT ON COLUMN public.operator.created_at IS 'When first seen.';
COMMENT ON COLUMN public.operator.updated_at IS 'When last changed.';
ALTER TABLE public.operator ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.operator_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
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
CREATE VIEW public.queue_invariants AS
 WITH looked_at AS MATERIALIZED (
         SELECT (max(snap_processing_job.id) - 19999) AS lowest,
            max(snap_processing_job.id) AS highest
           FROM public.snap_processing_job
        ), job AS MATERIALIZED (
         SELECT snap_processing_job.id,
            snap_processing_job.kind,
            snap_processing_job.status,
            snap_processing_job.attempt_count,
            snap_processing_job.max_attempts,
            snap_processing_job.lease_seq,
            snap_processing_job.suspect,
            snap_processing_job.cancel_requested_at,
            snap_processing_job.next_retry_at,
            snap_processing_job.started_at,
            snap_processing_job.finished_at,
            (snap_processing_job.last_error IS NULL) AS has_no_error,
            (snap_processing_job.result IS NOT NULL) AS has_result,
            (snap_processing_job.spec_hash IS NULL) AS has_no_hash
           FROM public.snap_processing_job
          WHERE (snap_processing_job.id = ANY (ARRAY( SELECT generate_series(GREATEST(looked_at.lowest, (1)::bigint), looked_at.highest) AS generate_series
                   FROM looked_at)))
        UNION ALL
         SELECT snap_processing_job.id,
            snap_processing_job.kind,
            snap_processing_job.status,
            snap_processing_job.attempt_count,
            snap_processing_job.max_attempts,
            snap_processing_job.lease_seq,
            snap_processing_job.suspect,
            snap_processing_job.cancel_requested_at,
            snap_processing_job.next_retry_at,
            snap_processing_job.started_at,
            snap_processing_job.finished_at,
            (snap_processing_job.last_error IS NULL),
            (snap_processing_job.result IS NOT NULL),
            (snap_processing_job.spec_hash IS NULL)
           FROM public.snap_processing_job
          WHERE ((snap_processing_job.status = 'RUNNING'::text) AND (snap_processing_job.id < ( SELECT looked_at.lowest
                   FROM looked_at)))
        ), slot AS MATERIALIZED (
         SELECT newest.schedule,
            newest.slot,
            newest.outcome,
            newest.why,
            newest.job_id,
            newest.worker,
            newest.recorded_at,
            its.settled_until
           FROM (public.job_schedule its
             CROSS JOIN LATERAL ( SELECT job_schedule_slot.schedule,
                    job_schedule_slot.slot,
                    job_schedule_slot.outcome,
                    job_schedule_slot.why,
                    job_schedule_slot.job_id,
                    job_schedule_slot.worker,
                    job_schedule_slot.recorded_at
                   FROM public.job_schedule_slot
                  WHERE (job_schedule_slot.schedule = its.name)
                  ORDER BY job_schedule_slot.slot DESC
                 LIMIT 200) newest)
        ), logged AS MATERIALIZED (
        ( SELECT job_log.job_id
           FROM public.job_log
          ORDER BY job_log.job_id, job_log.id
         LIMIT 2000)
        UNION
        ( SELECT job_log.job_id
           FROM public.job_log
          ORDER BY job_log.job_id DESC, job_log.id DESC
         LIMIT 2000)
        )
 SELECT 'I3'::text AS invariant,
    job.id AS job_id,
    'it waits though somebody cancelled it'::text AS what
   FROM job
  WHERE ((job.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (job.cancel_requested_at IS NOT NULL))
UNION ALL
 SELECT 'I3'::text AS invariant,
    job.id AS job_id,
    (('it is '::text || job.status) || ' and still a suspect'::text) AS what
   FROM job
  WHERE ((job.status = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])) AND job.suspect)
UNION ALL
 SELECT 'I3'::text AS invariant,
    job.id AS job_id,
    'it ended before it began'::text AS what
   FROM job
  WHERE (job.finished_at < (job.started_at - '00:00:01'::interval))
UNION ALL
 SELECT 'I4'::text AS invariant,
    job.id AS job_id,
    format('it runs its attempt %s under lease %s: a claim did not raise lease_seq'::text, job.attempt_count, job.lease_seq) AS what
   FROM job
  WHERE ((job.status = 'RUNNING'::text) AND (job.lease_seq < job.attempt_count))
UNION ALL
 SELECT 'I4'::text AS invariant,
    job.id AS job_id,
    format('it is COMPLETED after %s attempts with lease_seq %s: nobody held it'::text, job.attempt_count, job.lease_seq) AS what
   FROM job
  WHERE ((job.status = 'COMPLETED'::text) AND (job.lease_seq > 0) AND ((job.lease_seq < 2) OR (job.attempt_count = 0)))
UNION ALL
 SELECT 'I7'::text AS invariant,
    job.id AS job_id,
    format('it is %s with %s of %s attempts'::text, job.status, job.attempt_count, job.max_attempts) AS what
   FROM job
  WHERE (job.attempt_count > (job.max_attempts + ((job.status = 'RUNNING'::text))::integer))
UNION ALL
 SELECT 'I7'::text AS invariant,
    job.id AS job_id,
    'it is a dead letter without a reason'::text AS what
   FROM job
  WHERE ((job.status = 'FAILED'::text) AND job.has_no_error)
UNION ALL
 SELECT 'I8'::text AS invariant,
    job.id AS job_id,
    'it began before it was due'::text AS what
   FROM job
  WHERE ((job.status = 'RUNNING'::text) AND (job.started_at < (job.next_retry_at - '00:00:01'::interval)))
UNION ALL
 SELECT 'I9'::text AS invariant,
    job.id AS job_id,
    (('it is '::text || job.status) || ' and has a result'::text) AS what
   FROM job
  WHERE ((job.status <> 'COMPLETED'::text) AND job.has_result)
UNION ALL
 SELECT 'I3'::text AS invariant,
    job.id AS job_id,
    'it has no spec_hash: the trigger job_before_insert did not see it'::text AS what
   FROM job
  WHERE job.has_no_hash
UNION ALL
 SELECT 'I13'::text AS invariant,
    slot.job_id,
    format('it is the job of %s slots, of %s'::text, count(*), string_agg(DISTINCT slot.schedule, ', '::text)) AS what
   FROM slot
  WHERE (slot.job_id IS NOT NULL)
  GROUP BY slot.job_id
 HAVING (count(*) > 1)
UNION ALL
 SELECT 'I13'::text AS invariant,
    its.id AS job_id,
    format('the slot %s of %s has a job of the kind %s'::text, slot.slot, slot.schedule, its.kind) AS what
   FROM (slot
     CROSS JOIN LATERAL ( SELECT snap_processing_job.id,
            snap_processing_job.kind
           FROM public.snap_processing_job
          WHERE (snap_processing_job.id = slot.job_id)
         LIMIT 1) its)
  WHERE (its.kind <> slot.schedule)
UNION ALL
 SELECT 'I13'::text AS invariant,
    slot.job_id,
    format('the slot %s of %s was fired ahead of settled_until'::text, slot.slot, slot.schedule) AS what
   FROM slot
  WHERE ((slot.worker IS NOT NULL) AND (slot.slot > slot.settled_until))
UNION ALL
 SELECT 'I10'::text AS invariant,
    NULL::bigint AS job_id,
    format('the workers %s and %s say they are process %s of one machine'::text, old.id, young.id, old.pid) AS what
   FROM (public.job_worker old
     JOIN public.job_worker young USING (machine, pid))
  WHERE ((old.pid_started < young.pid_started) AND (old.beat_at > young.started_at))
UNION ALL
 SELECT 'I10'::text AS invariant,
    logged.job_id,
    'there are lines in job_log of a job that is not there'::text AS what
   FROM (logged
     LEFT JOIN LATERAL ( SELECT snap_processing_job.id
           FROM public.snap_processing_job
          WHERE (snap_processing_job.id = logged.job_id)
         LIMIT 1) its ON (true))
  WHERE (its.id IS NULL)
UNION ALL
 SELECT 'I3'::text AS invariant,
    NULL::bigint AS job_id,
    format('the unique index %s is not valid: it guards nothing'::text, (pg_index.indexrelid)::regclass) AS what
   FROM pg_index
  WHERE ((pg_index.indrelid = ('public.snap_processing_job'::regclass)::oid) AND pg_index.indisunique AND (NOT pg_index.indisvalid))
UNION ALL
 SELECT 'I3'::text AS invariant,
    NULL::bigint AS job_id,
    format('the constraint %s was never validated'::text, pg_constraint.conname) AS what
   FROM pg_constraint
  WHERE ((pg_constraint.conrelid = ('public.snap_processing_job'::regclass)::oid) AND (NOT pg_constraint.convalidated))
UNION ALL
 SELECT 'I3'::text AS invariant,
    NULL::bigint AS job_id,
    format('the trigger %s is disabled'::text, pg_trigger.tgname) AS what
   FROM pg_trigger
  WHERE ((pg_trigger.tgrelid = ('public.snap_processing_job'::regclass)::oid) AND (pg_trigger.tgenabled = 'D'::"char"));
COMMENT ON VIEW public.queue_invariants IS 'What must never be: empty, or something is broken that no retry mends. snapapp doctor looks here too.';
CREATE VIEW public.queue_overview AS
 SELECT live.queue,
    count(*) FILTER (WHERE (live.status = 'PENDING'::text)) AS pending,
    count(*) FILTER (WHERE (live.status = 'RETRY_WAIT'::text)) AS retry_wait,
    count(*) FILTER (WHERE ((live.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (live.next_retry_at <= now()))) AS due,
    count(*) FILTER (WHERE (live.status = 'RUNNING'::text)) AS running,
    count(*) FILTER (WHERE (live.status = 'FAILED'::text)) AS failed,
    date_trunc('second'::text, (now() - min(live.next_retry_at) FILTER (WHERE ((live.status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (live.next_retry_at <= now()) AND isfinite(live.next_retry_at))))) AS oldest_due,
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
CREATE VIEW public.schedule_overview AS
 SELECT its.name,
    its.spec,
    its.tz,
    its.queue,
    its.missed,
    its.overlap,
    its.paused_at,
    its.paused_reason,
    ( SELECT count(*) AS count
           FROM public.job_worker
          WHERE ((job_worker.id = ANY (its.declared_by)) AND (job_worker.expires_at > now()))) AS workers,
    last.slot AS last_slot,
    last.outcome AS last_outcome,
    last.why AS last_why,
    fired.slot AS last_fired,
    fired.job_id AS last_job,
    job.status AS last_job_status,
    its.settled_until,
    its.created_at,
    its.declared_at
   FROM (((public.job_schedule its
     LEFT JOIN LATERAL ( SELECT job_schedule_slot.schedule,
            job_schedule_slot.slot,
            job_schedule_slot.outcome,
            job_schedule_slot.why,
            job_schedule_slot.job_id,
            job_schedule_slot.worker,
            job_schedule_slot.recorded_at
           FROM public.job_schedule_slot
          WHERE (job_schedule_slot.schedule = its.name)
          ORDER BY job_schedule_slot.slot DESC
         LIMIT 1) last ON (true))
     LEFT JOIN LATERAL ( SELECT job_schedule_slot.schedule,
            job_schedule_slot.slot,
            job_schedule_slot.outcome,
            job_schedule_slot.why,
            job_schedule_slot.job_id,
            job_schedule_slot.worker,
            job_schedule_slot.recorded_at
           FROM public.job_schedule_slot
          WHERE ((job_schedule_slot.schedule = its.name) AND (job_schedule_slot.job_id IS NOT NULL))
          ORDER BY job_schedule_slot.slot DESC
         LIMIT 1) fired ON (true))
     LEFT JOIN public.snap_processing_job job ON ((job.id = fired.job_id)))
  ORDER BY its.name;
COMMENT ON VIEW public.schedule_overview IS 'Every schedule with its last slot and its last job; workers = 0 means that nobody alive declares it, so nothing fires.';
CREATE TABLE public.share (
    token text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    snap_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT token_can_be_in_a_path CHECK ((token ~ '^[A-Za-z0-9_-]{16,200}$'::text))
);
COMMENT ON TABLE public.share IS 'Public links. One of a snap is in force at a time; the others are dead for ever.';
COMMENT ON COLUMN public.share.token IS 'The secret part of the link.';
COMMENT ON COLUMN public.share.tenant IS 'Whose.';
COMMENT ON COLUMN public.share.snap_id IS 'Of which snap.';
COMMENT ON COLUMN public.share.created_at IS 'When it was made.';
COMMENT ON COLUMN public.share.expires_at IS 'Until when it works; null: for ever.';
COMMENT ON COLUMN public.share.revoked_at IS 'When it was revoked.';
CREATE TABLE public.snap (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    video_id uuid NOT NULL,
    operator_id bigint NOT NULL,
    template_id bigint NOT NULL,
    nickname text NOT NULL,
    nickname_lower text GENERATED ALWAYS AS (lower(nickname)) STORED NOT NULL,
    email text NOT NULL,
    kind text NOT NULL,
    is_draft boolean DEFAULT false NOT NULL,
    filmed_at timestamp with time zone,
    start_seconds double precision,
    start_frame bigint,
    resolved_start_seconds double precision,
    duration_seconds double precision NOT NULL,
    clip_seconds double precision NOT NULL,
    fps integer NOT NULL,
    max_width integer NOT NULL,
    format text NOT NULL,
    quality integer,
    "overlay" jsonb,
    subject_id text NOT NULL,
    subject jsonb NOT NULL,
    ended text,
    error text,
    cancelled_by text,
    probe jsonb,
    clip jsonb,
    frames jsonb,
    frame_count integer DEFAULT 0 NOT NULL,
    extras jsonb DEFAULT '{}'::jsonb NOT NULL,
    media_prefix text,
    request_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    processed_at timestamp with time zone,
    hidden_at timestamp with time zone,
    CONSTRAINT completed_means_evidence CHECK (((ended IS DISTINCT FROM 'COMPLETED'::text) OR ((frames IS NOT NULL) AND (error IS NULL)))),
    CONSTRAINT ended_is_known CHECK ((ended = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text]))),
    CONSTRAINT ended_means_processed CHECK (((ended IS NULL) = (processed_at IS NULL))),
    CONSTRAINT failed_means_a_reason CHECK ((((ended = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text])) IS NOT TRUE) OR (error IS NOT NULL))),
    CONSTRAINT format_is_known CHECK (((format = ANY (ARRAY['jpg'::text, 'png'::text])) AND ((format = 'jpg'::text) OR (quality IS NULL)))),
    CONSTRAINT it_starts_somewhere CHECK ((num_nonnulls(start_seconds, start_frame) > 0)),
    CONSTRAINT kind_is_known CHECK ((kind = ANY (ARRAY['INSTANT'::text, 'INTERVAL'::text]))),
    CONSTRAINT moments_are_sane CHECK ((((start_seconds >= (0)::double precision) AND (start_seconds <= ('10000000'::numeric)::double precision)) AND ((start_frame >= 0) AND ((start_frame)::numeric <= '10000000000'::numeric)) AND ((resolved_start_seconds >= (0)::double precision) AND (resolved_start_seconds <= ('10000000'::numeric)::double precision)) AND ((duration_seconds >= (0)::double precision) AND (duration_seconds <= (60)::double precision)) AND ((clip_seconds >= (0)::double precision) AND (clip_seconds <= (60)::double precision)))),
    CONSTRAINT picture_is_sane CHECK ((((fps >= 1) AND (fps <= 60)) AND ((max_width >= 16) AND (max_width <= 8192)) AND ((quality >= 1) AND (quality <= 31)) AND (frame_count >= 0))),
    CONSTRAINT texts_are_short CHECK ((((length(nickname) >= 1) AND (length(nickname) <= 120)) AND ((length(email) >= 1) AND (length(email) <= 320)) AND ((length(subject_id) >= 1) AND (length(subject_id) <= 200)) AND (length(error) <= 4000) AND (length(cancelled_by) <= 120) AND (length(media_prefix) <= 1000) AND (length(request_id) <= 200))),
    CONSTRAINT values_are_capped CHECK (((pg_column_size("overlay") <= 100000) AND (pg_column_size(subject) <= 2000000) AND (pg_column_size(probe) <= 1000000) AND (pg_column_size(clip) <= 100000) AND (pg_column_size(frames) <= 2000000) AND (pg_column_size(extras) <= 2000000)))
);
ALTER TABLE ONLY public.snap FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.snap IS 'A marked moment of a video about a subject, and the evidence made of it. What processes it is in snap_job.';
COMMENT ON COLUMN public.snap.id IS 'What snapId names.';
COMMENT ON COLUMN public.snap.tenant IS 'Whose.';
COMMENT ON COLUMN public.snap.video_id IS 'Of which video.';
COMMENT ON COLUMN public.snap.operator_id IS 'Who marked it.';
COMMENT ON COLUMN public.snap.template_id IS 'The template that applied.';
COMMENT ON COLUMN public.snap.nickname IS 'The operators, as it was then.';
COMMENT ON COLUMN public.snap.nickname_lower IS 'nickname in lower case, for lists.';
COMMENT ON COLUMN public.snap.email IS 'The operators, as it was then; never shown in public.';
COMMENT ON COLUMN public.snap.kind IS 'INSTANT (up to 1 s) or INTERVAL.';
COMMENT ON COLUMN public.snap.is_draft IS 'Marked, but not described yet.';
COMMENT ON COLUMN public.snap.filmed_at IS 'When it was filmed, as the operator says.';
COMMENT ON COLUMN public.snap.start_seconds IS 'The moment as asked for, in seconds.';
COMMENT ON COLUMN public.snap.start_frame IS 'The moment as asked for, as a frame; wins over start_seconds.';
COMMENT ON COLUMN public.snap.resolved_start_seconds IS 'The moment actually used.';
COMMENT ON COLUMN public.snap.duration_seconds IS 'How much of it becomes frames.';
COMMENT ON COLUMN public.snap.clip_seconds IS 'How much of it becomes the clip.';
COMMENT ON COLUMN public.snap.fps IS 'Frames a second.';
COMMENT ON COLUMN public.snap.max_width IS 'The widest that a frame may be.';
COMMENT ON COLUMN public.snap.format IS 'jpg or png.';
COMMENT ON COLUMN public.snap.quality IS '2 best, 10 smallest; null for png.';
COMMENT ON COLUMN public.snap."overlay" IS 'What is drawn on the frames, as sent.';
COMMENT ON COLUMN public.snap.subject_id IS 'What it is about: the id sent, else the snaps own.';
COMMENT ON COLUMN public.snap.subject IS '{"id", "attributes": […]} as sent, or as last corrected.';
COMMENT ON COLUMN public.snap.ended IS 'COMPLETED, FAILED or CANCELLED; null: see its job in snap_job.';
COMMENT ON COLUMN public.snap.error IS 'Why it ended without evidence.';
COMMENT ON COLUMN public.snap.cancelled_by IS 'Who wanted it to stop.';
COMMENT ON COLUMN public.snap.probe IS 'What was found in the video.';
COMMENT ON COLUMN public.snap.clip IS 'The clip that was published.';
COMMENT ON COLUMN public.snap.frames IS 'The frames that were published, in order.';
COMMENT ON COLUMN public.snap.frame_count IS 'How many they are.';
COMMENT ON COLUMN public.snap.extras IS 'What else was published: poster, thumbnail, flags, hashes, the settings used.';
COMMENT ON COLUMN public.snap.media_prefix IS 'Below which its files lie in storage; each attempt writes below its own.';
COMMENT ON COLUMN public.snap.request_id IS 'The request that made it.';
COMMENT ON COLUMN public.snap.created_at IS 'When it was marked.';
COMMENT ON COLUMN public.snap.updated_at IS 'When the row was last changed.';
COMMENT ON COLUMN public.snap.processed_at IS 'When it ended.';
COMMENT ON COLUMN public.snap.hidden_at IS 'Since when its tenant does not see it any more; its links go on.';
CREATE VIEW public.snap_job WITH (security_barrier='true') AS
 SELECT DISTINCT ON (snap_id) snap_id,
    tenant,
    id,
    status,
    attempt_count,
    max_attempts,
    next_retry_at,
    started_at,
    finished_at,
    last_error,
    progress,
    cancel_requested_at,
    created_at
   FROM public.snap_processing_job
  WHERE ((snap_id IS NOT NULL) AND (kind = 'snap.process'::text) AND (tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)))
  ORDER BY snap_id, id DESC;
COMMENT ON VIEW public.snap_job IS 'The newest job of each snap, of the tenant in the setting snapapp.tenant only.';
ALTER TABLE public.snap_processing_job ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.snap_processing_job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.subject_attribute (
    snap_id uuid NOT NULL,
    "position" integer NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL,
    key_lower text GENERATED ALWAYS AS (lower(key)) STORED NOT NULL,
    type text NOT NULL,
    text_value text,
    text_head text GENERATED ALWAYS AS ("left"(text_value, 200)) STORED COLLATE pg_catalog."C",
    number_value double precision,
    CONSTRAINT key_is_short CHECK ((((length(key) >= 1) AND (length(key) <= 120)) AND (("position" >= 0) AND ("position" <= 999)))),
    CONSTRAINT value_is_of_its_type CHECK (((num_nonnulls(text_value, number_value) = 1) AND (type =
CASE
    WHEN (number_value IS NULL) THEN 'string'::text
    ELSE 'number'::text
END))),
    CONSTRAINT value_is_sane CHECK (((length(text_value) <= 1000) AND ((number_value >= ('-1000000000000000'::numeric)::double precision) AND (number_value <= ('1000000000000000'::numeric)::double precision))))
);
ALTER TABLE ONLY public.subject_attribute FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.subject_attribute IS 'The attributes of snaps, one a row, for searching: snap.subject has them as sent.';
COMMENT ON COLUMN public.subject_attribute.snap_id IS 'Of which snap.';
COMMENT ON COLUMN public.subject_attribute."position" IS 'Its place among them, from 0.';
COMMENT ON COLUMN public.subject_attribute.tenant IS 'Whose.';
COMMENT ON COLUMN public.subject_attribute.key IS 'As sent.';
COMMENT ON COLUMN public.subject_attribute.key_lower IS 'key in lower case.';
COMMENT ON COLUMN public.subject_attribute.type IS 'string or number.';
COMMENT ON COLUMN public.subject_attribute.text_value IS 'The value of a string.';
COMMENT ON COLUMN public.subject_attribute.text_head IS 'Its first 200 characters, which an index can hold.';
COMMENT ON COLUMN public.subject_attribute.number_value IS 'The value of a number, to 15 digits.';
CREATE TABLE public.subject_word (
    snap_id uuid NOT NULL,
    word text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT word_is_short CHECK (((length(word) >= 1) AND (length(word) <= 60)))
);
ALTER TABLE ONLY public.subject_word FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.subject_word IS 'Every word said of a subject, in lower case without accents: what free text search looks in.';
COMMENT ON COLUMN public.subject_word.snap_id IS 'Of which snap.';
COMMENT ON COLUMN public.subject_word.word IS 'A word of its id or attributes.';
COMMENT ON COLUMN public.subject_word.tenant IS 'Whose.';
CREATE TABLE public.template (
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    slug text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    fields jsonb DEFAULT '[]'::jsonb NOT NULL,
    is_default boolean DEFAULT false NOT NULL,
    is_active boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT default_is_active CHECK ((is_active OR (NOT is_default))),
    CONSTRAINT fields_are_a_list CHECK (((jsonb_typeof(fields) = 'array'::text) AND (pg_column_size(fields) <= 100000))),
    CONSTRAINT names_are_short CHECK ((((length(slug) >= 1) AND (length(slug) <= 120)) AND ((length(name) >= 1) AND (length(name) <= 200))))
);
ALTER TABLE ONLY public.template FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.template IS 'Which attributes a subject should have.';
COMMENT ON COLUMN public.template.id IS 'What subjectTemplateId names.';
COMMENT ON COLUMN public.template.tenant IS 'Whose.';
COMMENT ON COLUMN public.template.slug IS 'Its name for programs.';
COMMENT ON COLUMN public.template.name IS 'For people.';
COMMENT ON COLUMN public.template.fields IS 'A list of {key, type: string or number, required, order, default}.';
COMMENT ON COLUMN public.template.is_default IS 'Used where a snap names none; one a tenant.';
COMMENT ON COLUMN public.template.is_active IS 'Whether it can still be named.';
COMMENT ON COLUMN public.template.created_at IS 'When it was added.';
COMMENT ON COLUMN public.template.updated_at IS 'When it was last changed.';
ALTER TABLE public.template ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.template_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.tenant (
    code text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    token_hash bytea,
    status text DEFAULT 'ACTIVE'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    token_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT code_can_be_in_a_path CHECK ((((length(code) >= 1) AND (length(code) <= 100)) AND (code !~ '[[:cntrl:]/\\]'::text) AND (code = btrim(code)) AND (code <> ALL (ARRAY['.'::text, '..'::text])))),
    CONSTRAINT name_is_short CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT status_is_known CHECK ((status = ANY (ARRAY['ACTIVE'::text, 'INACTIVE'::text]))),
    CONSTRAINT token_is_hashed CHECK ((octet_length(token_hash) = 32))
);
COMMENT ON TABLE public.tenant IS 'A customer (assinatura). Its code is its key everywhere; adding one gives it its templates.';
COMMENT ON COLUMN public.tenant.code IS 'What X-Assinatura-Codigo says.';
COMMENT ON COLUMN public.tenant.name IS 'For people.';
COMMENT ON COLUMN public.tenant.token_hash IS 'SHA-256 of its token, which is kept nowhere; null: it has none.';
COMMENT ON COLUMN public.tenant.status IS 'ACTIVE, or INACTIVE: then it is as if it did not exist.';
COMMENT ON COLUMN public.tenant.created_at IS 'When it was added.';
COMMENT ON COLUMN public.tenant.token_changed_at IS 'When it last got a token.';
CREATE TABLE public.video (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    url text,
    url_hash bytea,
    storage_key text,
    file_name text,
    size_bytes bigint,
    sha256 bytea,
    content_type text,
    probe jsonb,
    created_by bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT an_upload_is_described CHECK (((storage_key IS NULL) OR (url IS NOT NULL) OR (num_nonnulls(size_bytes, sha256) = 2))),
    CONSTRAINT it_has_a_source CHECK ((num_nonnulls(url, storage_key) > 0)),
    CONSTRAINT numbers_are_sane CHECK (((size_bytes >= 0) AND (octet_length(sha256) = 32))),
    CONSTRAINT probe_is_capped CHECK ((pg_column_size(probe) <= 1000000)),
    CONSTRAINT texts_are_short CHECK ((((length(url) >= 1) AND (length(url) <= 4096)) AND (length(storage_key) <= 1000) AND (length(file_name) <= 500) AND (length(content_type) <= 200))),
    CONSTRAINT url_is_hashed CHECK ((((url IS NULL) = (url_hash IS NULL)) AND (octet_length(url_hash) = 32)))
);
ALTER TABLE ONLY public.video FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.video IS 'A source of snaps: known by its URL, or uploaded.';
COMMENT ON COLUMN public.video.id IS 'What videoId names.';
COMMENT ON COLUMN public.video.tenant IS 'Whose.';
COMMENT ON COLUMN public.video.url IS 'Where it lies, as sent; null for an upload.';
COMMENT ON COLUMN public.video.url_hash IS 'SHA-256 of url: one row for each tenant and URL.';
COMMENT ON COLUMN public.video.storage_key IS 'Where the uploaded bytes are kept; null: they are fetched from url.';
COMMENT ON COLUMN public.video.file_name IS 'What the uploader called it; shown, never used as a path.';
COMMENT ON COLUMN public.video.size_bytes IS 'How large the upload is.';
COMMENT ON COLUMN public.video.sha256 IS 'Of the uploaded bytes: the same ones are kept once.';
COMMENT ON COLUMN public.video.content_type IS 'What the uploader said it is; not believed.';
COMMENT ON COLUMN public.video.probe IS 'What was found in it.';
COMMENT ON COLUMN public.video.created_by IS 'Who brought it.';
COMMENT ON COLUMN public.video.created_at IS 'When it came.';
CREATE TABLE public.webhook (
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL,
    secret text NOT NULL,
    events text[] NOT NULL,
    is_active boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT events_are_few CHECK (((cardinality(events) >= 1) AND (cardinality(events) <= 20))),
    CONSTRAINT url_is_short CHECK ((((length(url) >= 1) AND (length(url) <= 4096)) AND ((length(secret) >= 16) AND (length(secret) <= 200))))
);
ALTER TABLE ONLY public.webhook FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE public.webhook IS 'Whom to tell when something happened.';
COMMENT ON COLUMN public.webhook.id IS 'Identity.';
COMMENT ON COLUMN public.webhook.tenant IS 'Whose.';
COMMENT ON COLUMN public.webhook.url IS 'Where to.';
COMMENT ON COLUMN public.webhook.secret IS 'Signs what is sent, so it is kept readable; shown once.';
COMMENT ON COLUMN public.webhook.events IS 'What of.';
COMMENT ON COLUMN public.webhook.is_active IS 'Whether anything is sent.';
COMMENT ON COLUMN public.webhook.created_at IS 'When it was added.';
COMMENT ON COLUMN public.webhook.updated_at IS 'When it was last changed.';
ALTER TABLE public.webhook ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.webhook_id_seq
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
ALTER TABLE ONLY public.correction
    ADD CONSTRAINT correction_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY public.job_command
    ADD CONSTRAINT job_command_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_cost
    ADD CONSTRAINT job_cost_pkey PRIMARY KEY (job_id, lease_seq);
ALTER TABLE ONLY public.job_limit_key
    ADD CONSTRAINT job_limit_key_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.job_limit
    ADD CONSTRAINT job_limit_pkey PRIMARY KEY (key_pattern);
ALTER TABLE ONLY public.job_log
    ADD CONSTRAINT job_log_pkey PRIMARY KEY (job_id, id);
ALTER TABLE ONLY public.job_master
    ADD CONSTRAINT job_master_pkey PRIMARY KEY (host);
ALTER TABLE ONLY public.job_pool
    ADD CONSTRAINT job_pool_pkey PRIMARY KEY (host, name);
ALTER TABLE ONLY public.job_queue
    ADD CONSTRAINT job_queue_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.job_scaling
    ADD CONSTRAINT job_scaling_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_schedule
    ADD CONSTRAINT job_schedule_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.job_schedule_slot
    ADD CONSTRAINT job_schedule_slot_pkey PRIMARY KEY (schedule, slot);
ALTER TABLE ONLY public.job_tenant_switch
    ADD CONSTRAINT job_tenant_switch_pkey PRIMARY KEY (worker_id, from_tenant, to_tenant);
ALTER TABLE ONLY public.job_worker_exit
    ADD CONSTRAINT job_worker_exit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_worker
    ADD CONSTRAINT job_worker_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.operator
    ADD CONSTRAINT operator_email UNIQUE (tenant, email_lower);
ALTER TABLE ONLY public.operator
    ADD CONSTRAINT operator_of_tenant UNIQUE (tenant, id);
ALTER TABLE ONLY public.operator
    ADD CONSTRAINT operator_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.share
    ADD CONSTRAINT share_pkey PRIMARY KEY (token);
ALTER TABLE ONLY public.snap
    ADD CONSTRAINT snap_of_tenant UNIQUE (tenant, id);
ALTER TABLE ONLY public.snap
    ADD CONSTRAINT snap_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.snap_processing_job
    ADD CONSTRAINT snap_processing_job_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.subject_attribute
    ADD CONSTRAINT subject_attribute_pkey PRIMARY KEY (snap_id, "position");
ALTER TABLE ONLY public.subject_word
    ADD CONSTRAINT subject_word_pkey PRIMARY KEY (snap_id, word);
ALTER TABLE ONLY public.template
    ADD CONSTRAINT template_of_tenant UNIQUE (tenant, id);
ALTER TABLE ONLY public.template
    ADD CONSTRAINT template_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.template
    ADD CONSTRAINT template_slug UNIQUE (tenant, slug);
ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (code);
ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_token_hash_key UNIQUE (token_hash);
ALTER TABLE ONLY public.video
    ADD CONSTRAINT video_of_tenant UNIQUE (tenant, id);
ALTER TABLE ONLY public.video
    ADD CONSTRAINT video_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.video
    ADD CONSTRAINT video_url UNIQUE (tenant, url_hash);
ALTER TABLE ONLY public.webhook
    ADD CONSTRAINT webhook_pkey PRIMARY KEY (id);
CREATE INDEX correction_of_snap ON public.correction USING btree (tenant, snap_id, id);
CREATE INDEX idempotency_by_age ON public.idempotency USING btree (tenant, created_at);
CREATE INDEX idempotency_of_snap ON public.idempotency USING btree (tenant, snap_id);
CREATE INDEX job_command_open ON public.job_command USING btree (host, id) WHERE (status = ANY (ARRAY['PENDING'::text, 'TAKEN'::text]));
CREATE INDEX job_cost_of_kind ON public.job_cost USING btree (kind, started_at);
CREATE INDEX job_scaling_of_pool ON public.job_scaling USING btree (host, pool, id);
CREATE INDEX job_schedule_slot_fired ON public.job_schedule_slot USING btree (schedule, slot) WHERE (job_id IS NOT NULL);
CREATE UNIQUE INDEX share_in_force ON public.share USING btree (snap_id) WHERE (revoked_at IS NULL);
CREATE INDEX share_of_snap ON public.share USING btree (tenant, snap_id, created_at);
CREATE INDEX snap_failed ON public.snap USING btree (tenant, created_at, id) WHERE ((hidden_at IS NULL) AND (ended = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text])));
CREATE INDEX snap_of_nickname ON public.snap USING btree (tenant, nickname_lower, created_at, id) WHERE (hidden_at IS NULL);
CREATE INDEX snap_of_nickname_by_video ON public.snap USING btree (tenant, nickname_lower, video_id, created_at, id) WHERE (hidden_at IS NULL);
CREATE INDEX snap_of_subject ON public.snap USING btree (tenant, subject_id, created_at, id) WHERE (hidden_at IS NULL);
CREATE INDEX snap_of_video ON public.snap USING btree (tenant, video_id, resolved_start_seconds, id) WHERE (hidden_at IS NULL);
CREATE INDEX snap_pending ON public.snap USING btree (tenant, created_at, id) WHERE ((hidden_at IS NULL) AND (ended IS NULL));
CREATE INDEX snap_processing_job_failed ON public.snap_processing_job USING btree (id) WHERE (status = 'FAILED'::text);
CREATE INDEX snap_processing_job_running ON public.snap_processing_job USING btree (id) WHERE (status = 'RUNNING'::text);
CREATE INDEX snap_processing_job_snap ON public.snap_processing_job USING btree (snap_id, id) WHERE (snap_id IS NOT NULL);
CREATE INDEX snap_processing_job_suspect ON public.snap_processing_job USING btree (next_retry_at, id) WHERE (suspect AND (status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])));
CREATE UNIQUE INDEX snap_processing_job_unique_ever ON public.snap_processing_job USING btree (kind, tenant, unique_key) WHERE (unique_scope = 'ever'::text);
CREATE UNIQUE INDEX snap_processing_job_unique_live ON public.snap_processing_job USING btree (kind, tenant, unique_key) WHERE ((unique_scope = 'live'::text) AND (status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text, 'RUNNING'::text])));
CREATE UNIQUE INDEX snap_processing_job_unique_waiting ON public.snap_processing_job USING btree (kind, tenant, unique_key) WHERE ((unique_scope = 'waiting'::text) AND (status = 'PENDING'::text) AND (lease_seq = 0));
CREATE INDEX snap_processing_job_waiting ON public.snap_processing_job USING btree (queue, kind, priority, lane, next_retry_at, id) WHERE ((status = ANY (ARRAY['PENDING'::text, 'RETRY_WAIT'::text])) AND (NOT suspect));
CREATE INDEX snap_recent ON public.snap USING btree (tenant, created_at, id) WHERE (hidden_at IS NULL);
CREATE INDEX subject_attribute_number ON public.subject_attribute USING btree (tenant, key_lower, number_value, snap_id) WHERE (number_value IS NOT NULL);
CREATE INDEX subject_attribute_text ON public.subject_attribute USING btree (tenant, key_lower, text_head, snap_id) WHERE (text_value IS NOT NULL);
CREATE INDEX subject_word_of_tenant ON public.subject_word USING btree (tenant, word, snap_id);
CREATE UNIQUE INDEX template_default ON public.template USING btree (tenant) WHERE is_default;
CREATE UNIQUE INDEX video_bytes ON public.video USING btree (tenant, sha256) WHERE ((storage_key IS NOT NULL) AND (url IS NULL));
CREATE INDEX video_recent ON public.video USING btree (tenant, created_at, id);
CREATE INDEX webhook_of_tenant ON public.webhook USING btree (tenant, id);
CREATE OR REPLACE VIEW public.limit_overview AS
 WITH running AS (
         SELECT its_1.key,
            count(*) AS jobs
           FROM (public.snap_processing_job job
             CROSS JOIN LATERAL ( VALUES (('queue:'::text || job.queue)), (('key:'::text || NULLIF(job.lane, ''::text)))) its_1(key))
          WHERE ((job.status = 'RUNNING'::text) AND (its_1.key IS NOT NULL))
          GROUP BY its_1.key
        )
 SELECT its.key_pattern,
    its.max_running,
    its.rate,
    its.burst,
    count(seen.key) AS keys_running,
    (COALESCE(sum(seen.jobs), (0)::numeric))::bigint AS running,
    count(*) FILTER (WHERE (seen.jobs >= its.max_running)) AS keys_full
   FROM (public.job_limit its
     LEFT JOIN ( SELECT running.key,
            running.jobs,
            ruling.key_pattern
           FROM (running
             CROSS JOIN LATERAL public.job_limit_of(running.key) ruling(key_pattern, max_running, rate, burst))) seen USING (key_pattern))
  GROUP BY its.key_pattern
  ORDER BY its.key_pattern;
CREATE TRIGGER job_after_insert AFTER INSERT ON public.snap_processing_job REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION public.job_after_insert();
CREATE TRIGGER job_before_insert BEFORE INSERT ON public.snap_processing_job FOR EACH ROW WHEN ((new.spec_hash IS NULL)) EXECUTE FUNCTION public.job_before_insert();
CREATE TRIGGER job_rules_begun AFTER INSERT ON public.job_queue FOR EACH ROW WHEN (new.fair) EXECUTE FUNCTION public.job_rules_changed();
CREATE TRIGGER job_rules_changed AFTER INSERT OR DELETE OR UPDATE ON public.job_limit FOR EACH STATEMENT EXECUTE FUNCTION public.job_rules_changed();
CREATE TRIGGER job_rules_changed AFTER UPDATE OF fair ON public.job_queue FOR EACH ROW EXECUTE FUNCTION public.job_rules_changed();
CREATE TRIGGER job_rules_ended AFTER DELETE ON public.job_queue FOR EACH ROW WHEN (old.fair) EXECUTE FUNCTION public.job_rules_changed();
CREATE TRIGGER snap_ends_with_its_job AFTER UPDATE OF status ON public.snap_processing_job FOR EACH ROW WHEN (((new.snap_id IS NOT NULL) AND (new.kind = 'snap.process'::text) AND (new.status = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text])) AND (old.status <> ALL (ARRAY['FAILED'::text, 'CANCELLED'::text])))) EXECUTE FUNCTION public.snap_ends_with_its_job();
CREATE TRIGGER snap_waits_with_its_job AFTER UPDATE OF status ON public.snap_processing_job FOR EACH ROW WHEN (((new.snap_id IS NOT NULL) AND (new.kind = 'snap.process'::text) AND (new.status = 'PENDING'::text) AND (old.status = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text])))) EXECUTE FUNCTION public.snap_waits_with_its_job();
CREATE TRIGGER snap_waits_with_its_replay AFTER INSERT ON public.snap_processing_job FOR EACH ROW WHEN (((new.replay_of IS NOT NULL) AND (new.snap_id IS NOT NULL) AND (new.kind = 'snap.process'::text))) EXECUTE FUNCTION public.snap_waits_with_its_job();
CREATE TRIGGER tenant_begins_with_templates AFTER INSERT ON public.tenant FOR EACH ROW EXECUTE FUNCTION public.tenant_begins_with_templates();
ALTER TABLE ONLY public.correction
    ADD CONSTRAINT correction_tenant_snap_id_fkey FOREIGN KEY (tenant, snap_id) REFERENCES public.snap(tenant, id) ON DELETE CASCADE;
ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_tenant_snap_id_fkey FOREIGN KEY (tenant, snap_id) REFERENCES public.snap(tenant, id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE ONLY public.job_schedule_slot
    ADD CONSTRAINT job_schedule_slot_schedule_fkey FOREIGN KEY (schedule) REFERENCES public.job_schedule(name) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE ONLY public.operator
    ADD CONSTRAINT operator_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(code);
ALTER TABLE ONLY public.share
    ADD CONSTRAINT share_tenant_snap_id_fkey FOREIGN KEY (tenant, snap_id) REFERENCES public.snap(tenant, id);
ALTER TABLE ONLY public.snap
    ADD CONSTRAINT snap_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(code);
ALTER TABLE ONLY public.snap
    ADD CONSTRAINT snap_tenant_operator_id_fkey FOREIGN KEY (tenant, operator_id) REFERENCES public.operator(tenant, id);
ALTER TABLE ONLY public.snap
    ADD CONSTRAINT snap_tenant_template_id_fkey FOREIGN KEY (tenant, template_id) REFERENCES public.template(tenant, id);
ALTER TABLE ONLY public.snap
    ADD CONSTRAINT snap_tenant_video_id_fkey FOREIGN KEY (tenant, video_id) REFERENCES public.video(tenant, id);
ALTER TABLE ONLY public.subject_attribute
    ADD CONSTRAINT subject_attribute_tenant_snap_id_fkey FOREIGN KEY (tenant, snap_id) REFERENCES public.snap(tenant, id) ON DELETE CASCADE;
ALTER TABLE ONLY public.subject_word
    ADD CONSTRAINT subject_word_tenant_snap_id_fkey FOREIGN KEY (tenant, snap_id) REFERENCES public.snap(tenant, id) ON DELETE CASCADE;
ALTER TABLE ONLY public.template
    ADD CONSTRAINT template_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(code);
ALTER TABLE ONLY public.video
    ADD CONSTRAINT video_tenant_created_by_fkey FOREIGN KEY (tenant, created_by) REFERENCES public.operator(tenant, id);
ALTER TABLE ONLY public.video
    ADD CONSTRAINT video_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(code);
ALTER TABLE ONLY public.webhook
    ADD CONSTRAINT webhook_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(code);
ALTER TABLE public.correction ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.idempotency ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON public.correction USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.idempotency USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.operator USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.share USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.snap USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
COMMENT ON POLICY its_own ON public.snap IS 'Only rows of the tenant in the setting snapapp.tenant; none where it is not set. So on every table here.';
CREATE POLICY its_own ON public.subject_attribute USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.subject_word USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.template USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.tenant USING ((code = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.video USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
CREATE POLICY its_own ON public.webhook USING ((tenant = NULLIF(current_setting('snapapp.tenant'::text, true), ''::text)));
ALTER TABLE public.operator ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.share ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.snap ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.subject_attribute ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.subject_word ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.template ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.tenant ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.video ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.webhook ENABLE ROW LEVEL SECURITY;
GRANT SELECT,INSERT ON TABLE public.correction TO snapapp_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency TO snapapp_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.operator TO snapapp_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.share TO snapapp_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.snap TO snapapp_tenant;
GRANT SELECT ON TABLE public.snap_job TO snapapp_tenant;
GRANT SELECT,INSERT,DELETE ON TABLE public.subject_attribute TO snapapp_tenant;
GRANT SELECT,INSERT,DELETE ON TABLE public.subject_word TO snapapp_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.template TO snapapp_tenant;
GRANT SELECT(code) ON TABLE public.tenant TO snapapp_tenant;
GRANT SELECT(name) ON TABLE public.tenant TO snapapp_tenant;
GRANT SELECT(status) ON TABLE public.tenant TO snapapp_tenant;
GRANT SELECT(created_at) ON TABLE public.tenant TO snapapp_tenant;
GRANT SELECT(token_changed_at) ON TABLE public.tenant TO snapapp_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.video TO snapapp_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.webhook TO snapapp_tenant;
