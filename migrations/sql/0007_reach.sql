-- What a job waits for, told more exactly: by the room that its kind runs in, in turns where lanes take turns, and
-- beside a suspect that must be alone.

ALTER TABLE job_worker
    ADD COLUMN rooms            jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN context_switches bigint NOT NULL DEFAULT 0,
    ADD COLUMN context_failures bigint NOT NULL DEFAULT 0;

ALTER TABLE job_queue ADD COLUMN paused_by text;


DROP FUNCTION pause_queue(text, text);

CREATE FUNCTION pause_queue(name text, reason text DEFAULT NULL, by text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    INSERT INTO job_queue AS q (name, paused_at, paused_reason, paused_by)
    VALUES (pause_queue.name, now(), reason, coalesce(pause_queue.by, session_user))
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, now()), paused_reason = excluded.paused_reason,
        paused_by = excluded.paused_by
$$;

CREATE OR REPLACE FUNCTION resume_queue(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE job_queue SET paused_at = NULL, paused_reason = NULL, paused_by = NULL WHERE job_queue.name = resume_queue.name;
    SELECT pg_notify('snapapp_job', resume_queue.name);
$$;


-- Which workers could take it, and what keeps them. `is_held`: its place among the others does not matter yet.
CREATE FUNCTION explain_workers_of_job(job snap_processing_job, OUT said text, OUT is_held boolean)
    RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
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
               -- in a child of its own a suspect is alone without keeping anybody away
               (SELECT min(other.id) FROM snap_processing_job AS other
                 WHERE other.status = 'RUNNING' AND other.suspect AND other.claimed_by = worker.id
                   AND NOT coalesce(rooms#>'{process,kinds}' ? other.kind, false)) AS alone) AS load;
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
        said := 'It ran when its worker died, so it runs next with nothing beside it: '
            || CASE WHEN seen.are_idle THEN 'a worker takes it as soon as it looks.'
                    ELSE 'a worker takes it when its other jobs have ended.' END;
    ELSIF seen.occupied = seen.taking THEN
        is_held := true;
        said := format('%s, which ran when its worker died, and so with nothing beside it: until that ends nothing else begins.',
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


-- As 0004 made it, but for a bucket that is in debt because its limit was lowered: nobody was told of that limit.
CREATE OR REPLACE FUNCTION job_limit_room(its_key text, running bigint, full_at timestamptz,
                               OUT places bigint, OUT tokens bigint, OUT next_token_in double precision)
    LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN max_running IS NOT NULL THEN greatest(0, max_running - running) END,  -- greatest() skips nulls
           CASE WHEN left_over IS NOT NULL THEN greatest(0, floor(left_over + 1e-9)) END::bigint,
           greatest(0, 1 - left_over) / rate
      FROM (SELECT *, burst - rate * greatest(0, extract(epoch FROM full_at - clock_timestamp())::float8) AS left_over
              FROM job_limit_of(its_key)) AS its
$$;


-- As 0004 made it, with who paused the queue, and the workers told by a function of their own.
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


-- As 0003 made it, but for where there is a limit or a fair queue: then lanes take turns, and nobody waits for the whole
-- of another lane. What is counted is capped: it may be asked of a job behind a million.
CREATE OR REPLACE FUNCTION explain_place_of_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
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


COMMENT ON COLUMN job_queue.paused_by IS 'Who paused it, as they say; else the role of their session.';
COMMENT ON COLUMN job_worker.rooms IS 'Where jobs run in it: thread, async, process, command, each with its slots and kinds.';
COMMENT ON COLUMN job_worker.context_switches IS 'How often the application''s context (its tenant) was entered for a job, hooks included.';
COMMENT ON COLUMN job_worker.context_failures IS 'How often that failed; the attempt then fails with ContextFailed.';
COMMENT ON FUNCTION pause_queue IS 'Lets no worker claim from a queue: SELECT pause_queue(''mail'', ''the server is away''). What runs goes on.';
COMMENT ON FUNCTION explain_workers_of_job IS 'Which workers could take a job that waits, and what keeps them; see explain_job(id).';
