CREATE FUNCTION explain_memory_of_job(job snap_processing_job, OUT said text, OUT is_shut boolean)
    RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT format('Worker %s holds its kind back, as of %s ago: %s.', name, job_span(clock_timestamp() - beat_at), why),
           everywhere
      FROM (SELECT name, beat_at, held_kinds ->> job.kind AS why, bool_and(held_kinds ? job.kind) OVER () AS everywhere
              FROM job_worker
             WHERE expires_at > clock_timestamp() AND status = 'ACTIVE' AND job.kind = ANY (kinds)
               AND (queues = '{}' OR job.queue = ANY (queues))) AS worker
     WHERE why IS NOT NULL
     ORDER BY name
$$;

COMMENT ON FUNCTION explain_memory_of_job IS 'The workers that hold back a job because memory is short; see explain_job(id).';
