CREATE FUNCTION explain_waiting_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    is_due boolean := job.next_retry_at <= clock;
    is_held boolean := false;
    seen record;
BEGIN
    IF job.status = 'RETRY_WAIT' AND job.last_error IS NOT NULL THEN  -- no error: its payload was replaced
        RETURN NEXT format('Attempt %s of %s failed: %s', coalesce(job.errors->-1->>'attempt', job.attempt_count::text),
                           job.max_attempts, left(split_part(job.last_error, chr(10), 1), 300));
    END IF;
    IF job.interruptions > 0 THEN
        RETURN NEXT format('A shutdown handed it back while it ran, %s times.', job.interruptions);
    END IF;
    IF job.attempt_count >= job.max_attempts THEN
        RETURN NEXT 'Its attempts are used up: the next worker that knows its kind writes it down as FAILED, without running it.';
    END IF;
    RETURN QUERY SELECT explain_parents_of_job(job);
    IF job.gate = 'after' AND is_due THEN
        RETURN;
    ELSIF NOT isfinite(job.next_retry_at) AND NOT is_due THEN
        RETURN NEXT 'It waits and never becomes due.';
    ELSIF NOT is_due THEN
        RETURN NEXT format('It waits and may run at %s, in %s.',
            to_char(job.next_retry_at, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'), job_span(job.next_retry_at - clock));
        IF job.gate <> 'after' THEN
            RETURN NEXT format('SELECT run_job_now(%1$s), or snapapp jobs now %1$s, makes it due at once.', job.id);
        END IF;
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

COMMENT ON FUNCTION explain_waiting_job IS 'What holds back a waiting job. People call explain_job(id).';
