-- Why is it not running, and when will it? Every sentence follows from rows that people can look at too.

CREATE FUNCTION job_span(span interval) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN seconds < 1 THEN round(seconds * 1000) || ' ms'
                WHEN seconds < 120 THEN floor(seconds) || ' s'
                WHEN seconds < 7200 THEN floor(seconds / 60) || ' min'
                WHEN seconds < 172800 THEN floor(seconds / 3600) || ' h'
                ELSE floor(seconds / 86400) || ' days' END
      FROM (SELECT abs(extract(epoch FROM span)) AS seconds) AS length
$$;


-- Who is before it, and when its turn comes. What is counted is capped: it may be asked of a job behind a million.
CREATE FUNCTION explain_place_of_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
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


CREATE FUNCTION explain_waiting_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
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


CREATE FUNCTION explain_job(job_id bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
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


COMMENT ON FUNCTION explain_job IS 'Why a job is where it is, and what comes next: SELECT explain_job(42).';
COMMENT ON FUNCTION explain_waiting_job IS 'What holds back a job that waits; explain_job(id) is what people call.';
COMMENT ON FUNCTION explain_place_of_job IS 'Who stands before a job that is due, and when its turn comes; see explain_job(id).';
COMMENT ON FUNCTION job_span IS 'A duration in words, as explain_job(id) says it.';
