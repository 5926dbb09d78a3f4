DROP FUNCTION explain_workers_of_job;
DROP FUNCTION pause_queue(text, text, text);

CREATE FUNCTION pause_queue(name text, reason text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    INSERT INTO job_queue AS q (name, paused_at, paused_reason) VALUES (pause_queue.name, now(), reason)
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, now()), paused_reason = excluded.paused_reason
$$;

COMMENT ON FUNCTION pause_queue IS 'No worker claims from this queue until resume_queue(name).';

CREATE OR REPLACE FUNCTION resume_queue(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE job_queue SET paused_at = NULL, paused_reason = NULL WHERE job_queue.name = resume_queue.name;
    SELECT pg_notify('snapapp_job', resume_queue.name);
$$;

-- as 0003 made it
CREATE OR REPLACE FUNCTION explain_place_of_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    most CONSTANT integer := 10000;
    above bigint;   -- due, of its kind and queue, with a higher priority
    beside bigint;  -- likewise with its priority, in lanes that are visited before its own
    before bigint;  -- likewise in its own lane
    ahead bigint;
    head bigint;
    ended bigint;
    per_second double precision;
BEGIN
    SELECT count(*) FILTER (WHERE next_retry_at <= clock_timestamp()) INTO above FROM (
        SELECT next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
           AND queue = job.queue AND kind = job.kind AND priority > job.priority LIMIT most + 1) AS higher;
    SELECT count(*) FILTER (WHERE next_retry_at <= clock_timestamp()) INTO beside FROM (
        SELECT next_retry_at FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
           AND queue = job.queue AND kind = job.kind AND priority = job.priority AND lane < job.lane
         LIMIT most + 1) AS others;
    SELECT count(*), min(id) INTO before, head FROM (
        SELECT id FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect
           AND queue = job.queue AND kind = job.kind AND priority = job.priority AND lane = job.lane
           AND (next_retry_at, id) < (job.next_retry_at, job.id)
         ORDER BY next_retry_at, id LIMIT most + 1) AS earlier;
    ahead := above + beside + before;

    IF ahead = 0 THEN
        RETURN NEXT 'Nobody of its kind stands before it: it is next.';
        RETURN;
    END IF;
    RETURN NEXT format('%s of its kind stand before it: %s in its lane, %s in lanes that come first, %s of a higher priority.',
        CASE WHEN greatest(before, beside, above) > most THEN 'More than ' || most ELSE ahead::text END,
        CASE WHEN before > most THEN 'more than ' || most ELSE before::text END,
        CASE WHEN beside > most THEN 'more than ' || most ELSE beside::text END,
        CASE WHEN above > most THEN 'more than ' || most ELSE above::text END);

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
            CASE WHEN greatest(before, beside, above) > most THEN 'more than' ELSE 'about' END,
            job_span(make_interval(secs => ahead / per_second)), round(per_second::numeric, 1));
    END IF;
END $$;

-- as 0004 made them
CREATE OR REPLACE FUNCTION job_limit_room(its_key text, running bigint, full_at timestamptz,
                               OUT places bigint, OUT tokens bigint, OUT next_token_in double precision)
    LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN max_running IS NOT NULL THEN greatest(0, max_running - running) END,  -- greatest() skips nulls
           floor(left_over + 1e-9)::bigint, greatest(0, 1 - left_over) / rate
      FROM (SELECT *, burst - rate * greatest(0, extract(epoch FROM full_at - clock_timestamp())::float8) AS left_over
              FROM job_limit_of(its_key)) AS its
$$;

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

    SELECT paused_at, paused_reason INTO seen FROM job_queue WHERE name = job.queue AND paused_at IS NOT NULL;
    IF FOUND THEN
        is_held := true;
        RETURN NEXT format('Its queue %s has been paused for %s, %s: resume_queue(%L) opens it.', job.queue,
            job_span(clock - seen.paused_at), coalesce('because: ' || seen.paused_reason, 'without a reason'), job.queue);
    END IF;

    FOR seen IN SELECT * FROM explain_limits_of_job(job) LOOP
        is_held := is_held OR seen.is_shut;
        RETURN NEXT seen.said;
    END LOOP;

    SELECT count(*) AS alive,
           count(*) FILTER (WHERE job.kind = ANY (kinds)) AS knowing,
           count(*) FILTER (WHERE serves) AS serving,
           count(*) FILTER (WHERE serves AND status = 'ACTIVE') AS taking,
           sum(slots) FILTER (WHERE serves AND status = 'ACTIVE') AS slots,
           sum(cardinality(current_jobs)) FILTER (WHERE serves AND status = 'ACTIVE') AS busy,
           bool_and(cardinality(current_jobs) = 0) FILTER (WHERE serves AND status = 'ACTIVE') AS are_idle,
           string_agg(DISTINCT name || ' says: ' || note, '; ') FILTER (WHERE serves AND note IS NOT NULL) AS notes
      INTO seen
      FROM (SELECT *, job.kind = ANY (kinds) AND (queues = '{}' OR job.queue = ANY (queues)) AS serves
              FROM job_worker WHERE expires_at > clock) AS worker;
    IF seen.taking = 0 THEN
        is_held := true;
        IF seen.alive = 0 THEN
            RETURN NEXT 'No worker is alive.';
        ELSIF seen.knowing = 0 THEN
            RETURN NEXT format('No worker that is alive knows the kind %s; they know: %s.', job.kind, (
                SELECT left(coalesce(string_agg(DISTINCT kind, ', '), 'none at all'), 300)
                  FROM job_worker CROSS JOIN unnest(kinds) AS kind WHERE expires_at > clock));
        ELSIF seen.serving = 0 THEN
            RETURN NEXT format('The workers that know the kind %s do not work the queue %s, but: %s.', job.kind, job.queue, (
                SELECT left(string_agg(DISTINCT queue, ', '), 300) FROM job_worker CROSS JOIN unnest(queues) AS queue
                 WHERE expires_at > clock AND job.kind = ANY (kinds)));
        ELSE
            RETURN NEXT format('Every worker that knows the kind %s is stopping.', job.kind);
        END IF;
        RETURN NEXT coalesce(
            (SELECT format('Last heard of one that knows it: %s, %s ago.', name, job_span(clock - beat_at))
               FROM job_worker WHERE expires_at <= clock AND job.kind = ANY (kinds) ORDER BY beat_at DESC LIMIT 1),
            (SELECT format('The last worker to leave was %s, %s ago: %s.', name, job_span(clock - exited_at), reason)
               FROM job_worker_exit ORDER BY id DESC LIMIT 1),
            'No worker has been seen yet.');
    ELSIF job.suspect THEN
        is_held := true;
        RETURN NEXT 'It ran when its worker died, so it runs next with nothing beside it: '
            || CASE WHEN seen.are_idle THEN 'a worker takes it as soon as it looks.'
                    ELSE 'a worker takes it when its other jobs have ended.' END;
    ELSIF seen.busy >= seen.slots THEN
        RETURN NEXT format('All %s slots of the workers that know its kind are busy.', seen.slots);
    ELSE
        RETURN NEXT format('Workers that know its kind: %s, with %s of %s slots busy.',
                           seen.taking, seen.busy, seen.slots);
    END IF;
    IF seen.notes IS NOT NULL THEN
        RETURN NEXT seen.notes || '.';
    END IF;
    IF is_due AND NOT is_held THEN
        RETURN QUERY SELECT explain_place_of_job(job);
    END IF;
END $$;

ALTER TABLE job_queue DROP COLUMN paused_by;
ALTER TABLE job_worker DROP COLUMN rooms, DROP COLUMN context_switches, DROP COLUMN context_failures;
