CREATE FUNCTION explain_limits_of_job(job snap_processing_job, OUT said text, OUT is_shut boolean)
    RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
DECLARE
    name text;
    its record;
    running bigint;
    holders text;  -- some of the jobs that run
    room record;
BEGIN
    IF job.gate = 'open' AND EXISTS (SELECT FROM job_rule_change) THEN
        said := 'Limits have changed, and the workers are looking through what waits.';
        RETURN NEXT;
    END IF;
    FOREACH name IN ARRAY ARRAY['queue:' || job.queue, 'kind:' || job.kind, 'key:' || nullif(job.lane, '')] LOOP
        SELECT * INTO its FROM job_limit_of(name);
        CONTINUE WHEN its.key_pattern IS NULL;
        SELECT count(*), array_to_string((array_agg('job ' || other.id ORDER BY other.id))[:3], ', ') INTO running, holders
          FROM snap_processing_job AS other
         WHERE other.status = 'RUNNING' AND other.gate = 'held'
           AND name IN ('queue:' || other.queue, 'kind:' || other.kind, 'key:' || other.lane);
        SELECT * INTO room FROM job_limit_room(its.max_running, its.rate, its.burst, running, coalesce(
            (SELECT full_at FROM job_limit_key WHERE key = name), now()));
        is_shut := its.max_running IS NOT DISTINCT FROM 0;
        IF is_shut THEN
            said := format('The limit %s lets nothing of %s run.', its.key_pattern, name);
            RETURN NEXT;
        ELSIF room.places = 0 THEN
            said := format('The limit %s lets %s of %s run at once, and %s run (%s%s): it waits for one of them to end. '
                           'snapapp limits set %L --max-running N changes it.',
                           its.key_pattern, its.max_running, name, running, holders,
                           CASE WHEN running > 3 THEN ', …' ELSE '' END, its.key_pattern);
            RETURN NEXT;
        ELSIF room.tokens = 0 THEN
            said := format('The limit %s lets %s of %s start a second, after a burst of %s: the next one may start in %s.',
                           its.key_pattern, its.rate, name, its.burst, job_span(make_interval(secs => room.next_token_in)));
            RETURN NEXT;
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM explain_memory_of_job(job);
END $$;

COMMENT ON FUNCTION explain_limits_of_job IS 'The limits, or the lack of memory, that hold back a waiting job; see explain_job(id).';
