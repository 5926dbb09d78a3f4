-- As 0004 made it.
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
END $$;

COMMENT ON FUNCTION explain_limits_of_job IS 'Which limits hold back a job that waits; see explain_job(id).';
DROP FUNCTION explain_memory_of_job;
ALTER TABLE job_worker DROP COLUMN free_mb, DROP COLUMN held_kinds;
DROP VIEW kind_costs;
DROP FUNCTION job_percentiles;
DROP TABLE job_cost;
