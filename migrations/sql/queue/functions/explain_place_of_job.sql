-- How many jobs come before a due job, and when its turn comes. In a fair queue lanes take turns, so a job does not
-- wait for the whole of another lane. Counting stops at a limit, because there may be a million jobs before it.
CREATE FUNCTION explain_place_of_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    most CONSTANT integer := 10000;
    is_fair CONSTANT boolean := job.gate = 'held' AND EXISTS (SELECT FROM job_queue WHERE name = job.queue AND fair);
    clock timestamptz := clock_timestamp();
    above bigint;   -- due jobs of its kind and queue with a higher priority; in a fair queue only of its lane
    before bigint;  -- the same with its own priority, and older
    rivals bigint;  -- other lanes
    ahead bigint;
    is_more boolean;
    head bigint;    -- the id of the next job
    ended bigint;
    per_second double precision;
BEGIN
    IF job.gate = 'held' THEN
        SELECT count(*) FILTER (WHERE priority > job.priority),
               count(*) FILTER (WHERE priority = job.priority AND (next_retry_at, id) < (job.next_retry_at, job.id))
          INTO above, before
          FROM (SELECT priority, next_retry_at, id FROM snap_processing_job
                 WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
                   AND queue = job.queue AND kind = job.kind AND (lane = job.lane OR NOT is_fair)
                 ORDER BY queue, kind, lane, priority DESC, next_retry_at, id LIMIT most + 1) AS waiting;
    ELSE
        SELECT count(*) FILTER (WHERE next_retry_at <= clock) INTO above FROM (
            SELECT next_retry_at FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
               AND queue = job.queue AND kind = job.kind AND priority > job.priority LIMIT most + 1) AS higher;
        SELECT count(*), min(id) INTO before, head FROM (
            SELECT id FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
               AND queue = job.queue AND kind = job.kind AND priority = job.priority
               AND (next_retry_at, id) < (job.next_retry_at, job.id)
             ORDER BY next_retry_at, id LIMIT most + 1) AS older;
    END IF;
    ahead := above + before;
    is_more := ahead > most;
    IF is_fair THEN
        WITH RECURSIVE walk AS (
            (SELECT lane FROM snap_processing_job
              WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' AND queue = job.queue AND kind = job.kind
              ORDER BY lane LIMIT 1)
          UNION ALL
            SELECT next.lane FROM walk CROSS JOIN LATERAL (
                SELECT other.lane FROM snap_processing_job AS other
                 WHERE other.status IN ('PENDING', 'RETRY_WAIT') AND other.gate = 'held'
                   AND other.queue = job.queue AND other.kind = job.kind AND other.lane > walk.lane
                 ORDER BY other.lane LIMIT 1) AS next
        )
        SELECT count(*) INTO rivals FROM (SELECT lane FROM walk LIMIT 1000) AS each WHERE lane <> job.lane;
        RETURN NEXT format('Lanes take turns: it is number %s of its own (%s), beside %s%s others with work.',
            CASE WHEN is_more THEN 'more than ' || most ELSE (ahead + 1)::text END, job.lane,
            CASE WHEN rivals >= 1000 THEN 'at least ' ELSE '' END, rivals);
        ahead := ahead * (rivals + 1) + rivals;
    ELSIF ahead = 0 THEN
        RETURN NEXT 'Nobody of its kind stands before it: it is next.';
        RETURN;
    ELSE
        RETURN NEXT format('%s of its kind stand before it: %s older, %s of a higher priority.',
            CASE WHEN is_more THEN 'More than ' || most ELSE ahead::text END,
            CASE WHEN before > most THEN 'more than ' || most ELSE before::text END,
            CASE WHEN above > most THEN 'more than ' || most ELSE above::text END);
    END IF;

    -- the jobs that ended lately have ids just below the next one, so the whole table need not be read
    SELECT count(*), count(*) / greatest(1, extract(epoch FROM clock - min(finished_at)))
      INTO ended, per_second
      FROM (SELECT kind, finished_at FROM snap_processing_job
             WHERE id < coalesce(head, job.id) ORDER BY id DESC LIMIT most) AS lately
     WHERE lately.kind = job.kind AND finished_at > clock - interval '10 minutes';
    IF ended < 5 THEN
        RETURN NEXT 'When its turn comes is unknown: hardly any of its kind ended in the last 10 minutes.';
    ELSE
        RETURN NEXT format('Its turn comes in %s %s, at %s a second as in the last 10 minutes.',
            CASE WHEN is_more THEN 'more than' WHEN is_fair THEN 'up to' ELSE 'about' END,
            job_span(make_interval(secs => ahead / per_second)), round(per_second::numeric, 1));
    END IF;
END $$;

COMMENT ON FUNCTION explain_place_of_job IS 'How many jobs come before a due job, and when its turn comes; see explain_job(id).';
