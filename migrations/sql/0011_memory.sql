-- A job that ran short of memory gets one more attempt with more of it.

ALTER TABLE snap_processing_job ADD COLUMN memory_mb integer;

COMMENT ON COLUMN snap_processing_job.memory_mb IS
    'Its memory limit in MB, in the place of its kind''s, since an attempt ran short of memory.';
COMMENT ON COLUMN snap_processing_job.suspect IS
    'It was running when its worker died, or ran short of memory: it runs next with nothing beside it.';


-- As 0007 made it, with the suspects that need much memory: they keep the others away also where they run in a child.
CREATE OR REPLACE FUNCTION explain_workers_of_job(job snap_processing_job, OUT said text, OUT is_held boolean)
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


-- As 0001 made it, with the memory limit: that too starts again.
CREATE OR REPLACE FUNCTION retry_job(job_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
