-- What attempts cost, and what is held back for want of memory.

-- One row for each attempt that ran in a process of its own, or for a second; of the quicker ones some, each of which
-- stands for many: a row for every one of 50,000 a second would cost more than the jobs.
CREATE TABLE job_cost (
    job_id     bigint NOT NULL,
    lease_seq  bigint NOT NULL,
    attempt    integer NOT NULL,
    kind       text NOT NULL COLLATE "C",
    outcome    text NOT NULL,
    started_at timestamptz NOT NULL,
    wait_ms    double precision,
    wall_ms    double precision NOT NULL,
    cpu_ms     double precision,
    peak_mb    double precision,
    stands_for integer NOT NULL DEFAULT 1 CHECK (stands_for > 0),
    PRIMARY KEY (job_id, lease_seq)  -- no foreign key: it would lock the busy row; prune removes both
);

CREATE INDEX job_cost_of_kind ON job_cost (kind, started_at);


-- The least amounts that 50, 95 and 99 % of the weight do not exceed. An amount that is null is not known, and left out.
CREATE FUNCTION job_percentiles(amounts double precision[], weights integer[],
                                OUT p50 double precision, OUT p95 double precision, OUT p99 double precision)
    LANGUAGE sql IMMUTABLE AS $$
    SELECT min(amount) FILTER (WHERE part >= 0.50), min(amount) FILTER (WHERE part >= 0.95),
           min(amount) FILTER (WHERE part >= 0.99)
      FROM (SELECT amount, sum(weight) OVER (ORDER BY amount ROWS UNBOUNDED PRECEDING) / sum(weight) OVER () AS part
              FROM unnest(amounts, weights::double precision[]) AS it (amount, weight)
             WHERE amount IS NOT NULL) AS ranked
$$;

-- The newest 1,000 rows of each kind, found by a loose index scan: as quick with a week of rows as with an hour.
CREATE VIEW kind_costs AS
WITH RECURSIVE known AS (
    (SELECT kind FROM job_cost ORDER BY kind LIMIT 1)
  UNION ALL
    SELECT next.kind FROM known CROSS JOIN LATERAL (
        SELECT kind FROM job_cost WHERE kind > known.kind ORDER BY kind LIMIT 1) AS next
)
SELECT known.kind, its.attempts, its.measured, its.since,
       wait.p50 AS wait_p50_ms, wait.p95 AS wait_p95_ms, wait.p99 AS wait_p99_ms,
       wall.p50 AS wall_p50_ms, wall.p95 AS wall_p95_ms, wall.p99 AS wall_p99_ms,
       cpu.p50 AS cpu_p50_ms, cpu.p95 AS cpu_p95_ms, cpu.p99 AS cpu_p99_ms,
       peak.p50 AS peak_p50_mb, peak.p95 AS peak_p95_mb, peak.p99 AS peak_p99_mb
  FROM known
 CROSS JOIN LATERAL (
    SELECT sum(stands_for) AS attempts, count(*) AS measured, min(started_at) AS since,
           array_agg(stands_for) AS weights, array_agg(wait_ms) AS waits, array_agg(wall_ms) AS walls,
           array_agg(cpu_ms) AS cpus, array_agg(peak_mb) AS peaks
      FROM (SELECT * FROM job_cost WHERE kind = known.kind ORDER BY started_at DESC LIMIT 1000) AS newest) AS its
 CROSS JOIN LATERAL job_percentiles(its.waits, its.weights) AS wait
 CROSS JOIN LATERAL job_percentiles(its.walls, its.weights) AS wall
 CROSS JOIN LATERAL job_percentiles(its.cpus, its.weights) AS cpu
 CROSS JOIN LATERAL job_percentiles(its.peaks, its.weights) AS peak
 ORDER BY known.kind;


ALTER TABLE job_worker ADD COLUMN free_mb integer, ADD COLUMN held_kinds jsonb NOT NULL DEFAULT '{}';

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

-- As 0004 made it, with the memory said after the limits.
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
    RETURN QUERY SELECT * FROM explain_memory_of_job(job);
END $$;


COMMENT ON TABLE job_cost IS 'What attempts cost: SELECT * FROM job_cost WHERE job_id = 42. The view kind_costs has percentiles. Rows go with their jobs.';
COMMENT ON COLUMN job_cost.job_id IS 'The job.';
COMMENT ON COLUMN job_cost.lease_seq IS 'Under which lease the attempt ran; attempts that were given back share their number, leases never do.';
COMMENT ON COLUMN job_cost.attempt IS 'Which attempt it was, as the row counted it then.';
COMMENT ON COLUMN job_cost.kind IS 'The job''s kind.';
COMMENT ON COLUMN job_cost.outcome IS 'The status that it led to; PENDING: handed back or snoozed; LEASE_LOST: its result was dropped.';
COMMENT ON COLUMN job_cost.started_at IS 'When it began to run.';
COMMENT ON COLUMN job_cost.wait_ms IS 'From when it was due to when it began.';
COMMENT ON COLUMN job_cost.wall_ms IS 'How long it ran, by the clock on the wall.';
COMMENT ON COLUMN job_cost.cpu_ms IS 'Processor time: of its thread; of its process or program with all that it started and waited for. Null: not known, as for async.';
COMMENT ON COLUMN job_cost.peak_mb IS 'The most memory that its process or program had resident; null for threads and async, who share theirs.';
COMMENT ON COLUMN job_cost.stands_for IS 'Of so many quick attempts this one was written down.';
COMMENT ON VIEW kind_costs IS 'What attempts of each kind wait, take and need, in percentiles of the newest 1,000 rows of job_cost.';
COMMENT ON FUNCTION job_percentiles IS 'The 50th, 95th and 99th percentile of amounts that stand for several each.';
COMMENT ON FUNCTION explain_memory_of_job IS 'Which workers hold back a job for want of memory; see explain_job(id).';
COMMENT ON FUNCTION explain_limits_of_job IS 'Which limits, and which want of memory, hold back a job that waits; see explain_job(id).';
COMMENT ON COLUMN job_worker.free_mb IS 'Memory that jobs may still take, as of the last beat, the reserve left out; null: cannot be known here.';
COMMENT ON COLUMN job_worker.held_kinds IS 'Kinds that it does not claim for want of memory, each with the reason.';
