-- Which workers could take a job, and why they do not. `is_held`: its place among the other jobs does not matter yet.
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
           string_agg(DISTINCT name || ' says: ' || note, '; ') FILTER (WHERE serves AND note IS NOT NULL) AS notes
      INTO seen
      FROM (SELECT *, job.kind = ANY (kinds) AND (queues = '{}' OR job.queue = ANY (queues)) AS serves
              FROM job_worker WHERE expires_at > clock) AS worker
     CROSS JOIN LATERAL (SELECT serves AND status = 'ACTIVE' AS takes) AS now_taking
      LEFT JOIN LATERAL (
        SELECT value FROM jsonb_each(executors) WHERE value->'kinds' ? job.kind LIMIT 1) AS executor ON serves
     CROSS JOIN LATERAL (
        SELECT coalesce((executor.value->>'slots')::integer, slots) AS its_slots,
               CASE WHEN executor.value IS NULL THEN cardinality(current_jobs)
                    ELSE (SELECT count(*) FROM snap_processing_job AS other
                           WHERE other.status = 'RUNNING' AND other.claimed_by = worker.id
                             AND executor.value->'kinds' ? other.kind) END AS busy) AS load;
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
            CASE WHEN seen.alive = 0 THEN 'No worker has been seen yet.'
                 WHEN seen.knowing = 0 THEN 'None that knows it has been seen yet.' END);
    ELSIF job.losses >= 2 OR job.memory_mb IS NOT NULL THEN
        is_held := true;
        said := CASE WHEN job.memory_mb IS NULL THEN format('It ran when its worker died, %s times in a row, so it runs next with nothing beside it: ', job.losses)
                     ELSE format('It ran short of memory, so it runs next with %s MB and nothing beside it: ', job.memory_mb)
                END
            || CASE WHEN seen.are_idle THEN 'a worker takes it as soon as it looks.'
                    ELSE 'a worker takes it when its other jobs have ended, or when it has let them go first for a minute.' END;
    ELSIF seen.busy >= seen.slots THEN
        said := format('All %s slots of the workers that know its kind are busy.', seen.slots);
    ELSE
        said := format('Workers that know its kind: %s, with %s of their %s slots for it busy.', seen.taking, seen.busy, seen.slots);
    END IF;
    IF said IS NOT NULL THEN
        RETURN NEXT;
    END IF;
    IF seen.notes IS NOT NULL THEN
        said := seen.notes || '.';
        RETURN NEXT;
    END IF;
END $$;

COMMENT ON FUNCTION explain_workers_of_job IS 'The workers that could take a waiting job, and why they do not; see explain_job(id).';
