-- Selects the held jobs that may begin now: due jobs of these kinds and queues, within every limit that covers them,
-- the lanes of a fair queue in turns. One caller runs at a time, so the answer stays right until its transaction ends.
-- `after_lane` is where each lane's head (queue and kind) was left the last time. The last row has no job: it says
-- where to begin the next time, and in how many seconds there may be more. `besides` are jobs that nobody can claim:
-- they take nobody's place.
CREATE FUNCTION job_let_in(
    kinds text[], queues text[], at_most integer, takes_suspects boolean,
    after_queue text[], after_kind text[], after_lane text[],
    besides bigint[],
    OUT job_id bigint, OUT due timestamptz, OUT turn integer, OUT is_limited boolean, OUT rates jsonb, OUT told jsonb
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    lanes_at_once CONSTANT integer := 100;
    promoted integer;
    next_later double precision;
BEGIN
    -- The caller that counts running jobs must be the only one that begins jobs, and must count in a statement after
    -- the lock: in the same statement it would count in an older snapshot (tried: limit 3, 12 running).
    IF NOT pg_try_advisory_xact_lock(7266823110002) THEN
        told := jsonb_build_object('again_in', 0.005 + 0.01 * random());
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE head AS (  -- each (queue, kind) with a due job
        (SELECT queue, kind FROM snap_processing_job
          WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' ORDER BY queue, kind LIMIT 1)
      UNION ALL
        SELECT next.* FROM head CROSS JOIN LATERAL (
            SELECT job.queue, job.kind FROM snap_processing_job AS job
             WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'held'
               AND (job.queue, job.kind) > (head.queue, head.kind)
             ORDER BY job.queue, job.kind LIMIT 1) AS next
    ), ours AS MATERIALIZED (
        SELECT head.queue, head.kind, coalesce(its.lane, '') AS after, coalesce(job_queue.fair, false) AS is_fair
          FROM head
          LEFT JOIN unnest(after_queue, after_kind, after_lane) AS its (queue, kind, lane) USING (queue, kind)
          LEFT JOIN job_queue ON job_queue.name = head.queue
         WHERE head.kind = ANY (kinds) AND (queues IS NULL OR head.queue = ANY (queues))
           AND job_queue.paused_at IS NULL
    ), turn AS MATERIALIZED (  -- of each head the lanes after its last one, then those before it
        SELECT ours.*, lanes.lane, lanes.turn
          FROM ours CROSS JOIN LATERAL (
            WITH RECURSIVE later AS (
                (SELECT job.lane FROM snap_processing_job AS job
                  WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'held'
                    AND job.queue = ours.queue AND job.kind = ours.kind AND job.lane > ours.after
                  ORDER BY job.lane LIMIT 1)
              UNION ALL
                SELECT next.lane FROM later CROSS JOIN LATERAL (
                    SELECT job.lane FROM snap_processing_job AS job
                     WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'held'
                       AND job.queue = ours.queue AND job.kind = ours.kind AND job.lane > later.lane
                     ORDER BY job.lane LIMIT 1) AS next
            ), earlier AS (
                (SELECT job.lane FROM snap_processing_job AS job
                  WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'held'
                    AND job.queue = ours.queue AND job.kind = ours.kind AND job.lane <= ours.after
                  ORDER BY job.lane LIMIT 1)
              UNION ALL
                SELECT next.lane FROM earlier CROSS JOIN LATERAL (
                    SELECT job.lane FROM snap_processing_job AS job
                     WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'held'
                       AND job.queue = ours.queue AND job.kind = ours.kind
                       AND job.lane > earlier.lane AND job.lane <= ours.after
                     ORDER BY job.lane LIMIT 1) AS next
            )
            SELECT lane, row_number() OVER () AS turn FROM (
                SELECT lane FROM later UNION ALL SELECT lane FROM earlier LIMIT lanes_at_once) AS both_ways) AS lanes
    ), running AS MATERIALIZED (
        SELECT key, count(*) AS jobs FROM snap_processing_job AS job
         CROSS JOIN LATERAL (VALUES ('queue:' || job.queue), ('kind:' || job.kind), ('key:' || nullif(job.lane, ''))) AS its (key)
         WHERE job.status = 'RUNNING' AND job.gate = 'held' AND key IS NOT NULL
         GROUP BY key
    ), room AS MATERIALIZED (  -- the room of each key that a limit covers
        SELECT wanted.key, its.rate, its.max_running, room.places, room.tokens, room.next_token_in
          FROM (SELECT 'queue:' || queue AS key FROM ours UNION SELECT 'kind:' || kind FROM ours
                UNION SELECT 'key:' || lane FROM turn WHERE lane <> '') AS wanted
         CROSS JOIN LATERAL job_limit_of(wanted.key) AS its
          LEFT JOIN running USING (key)
          LEFT JOIN job_limit_key AS bucket USING (key)
         CROSS JOIN LATERAL job_limit_room(
            its.max_running, its.rate, its.burst, coalesce(running.jobs, 0), coalesce(bucket.full_at, now())) AS room
    ), open AS (  -- lanes with room in each of their limits
        SELECT turn.*, in_queue.key AS queue_key, in_queue.room AS queue_room, in_kind.key AS kind_key,
               in_kind.room AS kind_room, in_lane.key AS lane_key, in_lane.room AS lane_room, count(*) OVER () AS lanes
          FROM turn
          LEFT JOIN LATERAL (SELECT key, least(places, tokens) AS room FROM room WHERE key = 'queue:' || turn.queue) AS in_queue ON true
          LEFT JOIN LATERAL (SELECT key, least(places, tokens) AS room FROM room WHERE key = 'kind:' || turn.kind) AS in_kind ON true
          LEFT JOIN LATERAL (SELECT key, least(places, tokens) AS room FROM room WHERE key = 'key:' || turn.lane) AS in_lane ON true
         WHERE coalesce(in_queue.room, 1) > 0 AND coalesce(in_kind.room, 1) > 0 AND coalesce(in_lane.room, 1) > 0
    ), candidate AS (
        SELECT open.*, job.id, job.priority, job.is_suspect, row_number() OVER lane_order AS nth,
               -- the age of a fair queue is that of its oldest job, whose turn may come late
               min(job.next_retry_at) OVER (PARTITION BY CASE WHEN open.is_fair THEN open.queue ELSE job.id::text END) AS due
          FROM open CROSS JOIN LATERAL (
            SELECT id, priority, next_retry_at, losses >= 2 OR memory_mb IS NOT NULL AS is_suspect
              FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
               AND queue = open.queue AND kind = open.kind AND lane = open.lane AND id <> ALL (besides)
               -- a suspect waits for an idle worker, but only for a limited time
               AND (takes_suspects OR (losses < 2 AND memory_mb IS NULL) OR next_retry_at < now() - interval '1 minute')
             ORDER BY priority DESC, next_retry_at, id
             LIMIT least(at_most, open.queue_room, open.kind_room, open.lane_room, 4 * at_most / lanes + 1)) AS job
        WINDOW lane_order AS (PARTITION BY open.queue, open.kind, open.lane ORDER BY job.priority DESC, job.next_retry_at, job.id)
    ), placed AS (
        SELECT *, row_number() OVER (ORDER BY priority DESC, due, CASE WHEN is_fair THEN nth ELSE 0 END, turn, nth) AS place
          FROM candidate
    ), counted AS (  -- for each of its keys, which one a job is
        SELECT *, row_number() OVER (PARTITION BY queue_key ORDER BY place) AS in_queue,
               row_number() OVER (PARTITION BY kind_key ORDER BY place) AS in_kind,
               row_number() OVER (PARTITION BY lane_key ORDER BY place) AS in_lane,
               row_number() OVER (PARTITION BY is_suspect ORDER BY place) AS of_its_sort
          FROM placed
    ), let_in AS MATERIALIZED (
        SELECT * FROM counted
         WHERE (queue_room IS NULL OR in_queue <= queue_room) AND (kind_room IS NULL OR in_kind <= kind_room)
           AND (lane_room IS NULL OR in_lane <= lane_room) AND (NOT is_suspect OR of_its_sort = 1)
         ORDER BY place LIMIT at_most
    )
    SELECT id, let_in.due, place::integer, queue_key IS NOT NULL OR kind_key IS NOT NULL OR lane_key IS NOT NULL,
           CASE WHEN EXISTS (SELECT FROM room WHERE rate IS NOT NULL)  -- else 100 jobs would look in vain
                THEN (SELECT jsonb_object_agg(key, rate) FROM room
                       WHERE rate IS NOT NULL AND key IN (queue_key, kind_key, lane_key)) END, NULL::jsonb
      FROM let_in
  UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, jsonb_build_object(
        'after', (SELECT jsonb_agg(jsonb_build_array(queue, kind, lane)) FROM (
            -- where the last turn ended; where nothing was let in of more lanes than one look sees, go on behind them
            SELECT DISTINCT ON (queue, kind) queue, kind, lane FROM (
                SELECT queue, kind, lane, 0 AS choice, place AS at FROM let_in
                UNION ALL SELECT queue, kind, lane, 1, turn FROM turn WHERE turn = lanes_at_once) AS either
             ORDER BY queue, kind, choice, at DESC) AS ends),
        'again_in', (SELECT least(
            CASE WHEN EXISTS (SELECT FROM turn WHERE turn = lanes_at_once)
                 THEN CASE WHEN EXISTS (SELECT FROM let_in) THEN 0 ELSE 0.02 END END,
            -- look again soon, because nothing announces that another worker's job has ended
            CASE WHEN EXISTS (SELECT FROM room WHERE places = 0 AND max_running > 0) THEN 0.2 END,
            CASE WHEN EXISTS (SELECT FROM let_in) THEN 0.2 END,
            (SELECT min(next_token_in) + 0.001 FROM room WHERE tokens = 0))));

    -- Jobs that became due meanwhile are looked at the next time, so that the rows of this statement do not change.
    WITH due AS MATERIALIZED (
        SELECT id FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' AND next_retry_at <= now() AND id <> ALL (besides)
         ORDER BY next_retry_at, id LIMIT 1000 FOR UPDATE SKIP LOCKED)
    UPDATE snap_processing_job SET gate = 'held' WHERE id = ANY (ARRAY(SELECT id FROM due));
    GET DIAGNOSTICS promoted = ROW_COUNT;
    next_later := least(  -- a due one that was left out is locked, or nobody can write it: not again at once
        (SELECT 1 FROM snap_processing_job
          WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' AND next_retry_at <= now() LIMIT 1),
        (SELECT extract(epoch FROM min(next_retry_at) - clock_timestamp()) FROM snap_processing_job
          WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' AND next_retry_at > now() AND isfinite(next_retry_at)));
    job_id := NULL; due := NULL; turn := NULL; is_limited := NULL; rates := NULL;
    told := jsonb_build_object('again_in', CASE WHEN promoted > 0 THEN 0 ELSE next_later END);
    RETURN NEXT;
END $$;

COMMENT ON FUNCTION job_let_in IS 'The held jobs that limits and fair queues allow to begin now; called by the claim.';
