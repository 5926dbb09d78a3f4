-- Limits and fair turns. A key names what is limited: `queue:NAME`, or `key:LANE`, where a job's lane is its
-- concurrency key, else its tenant in a fair queue. Running rows are the only counter, so nothing leaks.

ALTER TABLE job_limit
    ADD CONSTRAINT key_pattern_says_of_what CHECK (key_pattern ~ '^(queue|key):.' AND length(key_pattern) <= 600),
    ADD CONSTRAINT limit_says_how_much CHECK (num_nonnulls(max_running, rate) > 0),
    ADD CONSTRAINT rate_is_sane CHECK (rate <= 1000000),
    ADD CONSTRAINT burst_belongs_to_a_rate CHECK (burst IS NULL OR rate IS NOT NULL);

-- One row for each key that a limit was found for: the claim locks it, then counts in its next statement. It also is
-- the key's token bucket, as a single moment: what is missing until then, at the limit's rate, was taken.
CREATE TABLE job_limit_key (
    key     text PRIMARY KEY COLLATE "C",
    full_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);


-- The limit of a key: the one that names it, else the longest pattern that it begins with.
CREATE FUNCTION job_limit_of(its_key text)
    RETURNS TABLE (key_pattern text, max_running integer, rate double precision, burst integer)
    LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        SELECT key_pattern, max_running, rate, coalesce(burst, greatest(1, ceil(rate))::integer)
          FROM job_limit WHERE key_pattern = its_key
      UNION ALL
        (SELECT key_pattern, max_running, rate, coalesce(burst, greatest(1, ceil(rate))::integer)
           FROM job_limit WHERE right(key_pattern, 1) = '*' AND starts_with(its_key, left(key_pattern, -1))
          ORDER BY length(key_pattern) DESC LIMIT 1)) AS fitting
     LIMIT 1
$$;

-- What a key may still start now: places left, tokens left, and in how many seconds there is a token again.
CREATE FUNCTION job_limit_room(its_key text, running bigint, full_at timestamptz,
                               OUT places bigint, OUT tokens bigint, OUT next_token_in double precision)
    LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN max_running IS NOT NULL THEN greatest(0, max_running - running) END,  -- greatest() skips nulls
           floor(left_over + 1e-9)::bigint, greatest(0, 1 - left_over) / rate
      FROM (SELECT *, burst - rate * greatest(0, extract(epoch FROM full_at - clock_timestamp())::float8) AS left_over
              FROM job_limit_of(its_key)) AS its
$$;

-- Workers that claim without rules claim nothing any more once a rule is visible; this has them look why.
CREATE FUNCTION job_rules_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('snapapp_job', '');
    RETURN NULL;
END $$;

CREATE TRIGGER job_rules_changed AFTER INSERT OR UPDATE OR DELETE ON job_limit
    FOR EACH STATEMENT EXECUTE FUNCTION job_rules_changed();
CREATE TRIGGER job_rules_changed AFTER UPDATE OF fair ON job_queue
    FOR EACH ROW EXECUTE FUNCTION job_rules_changed();
CREATE TRIGGER job_rules_begun AFTER INSERT ON job_queue
    FOR EACH ROW WHEN (NEW.fair) EXECUTE FUNCTION job_rules_changed();
CREATE TRIGGER job_rules_ended AFTER DELETE ON job_queue
    FOR EACH ROW WHEN (OLD.fair) EXECUTE FUNCTION job_rules_changed();


CREATE VIEW limit_overview AS
WITH running AS (
    SELECT its.key, count(*) AS jobs FROM snap_processing_job AS job
     CROSS JOIN LATERAL (VALUES ('queue:' || job.queue), ('key:' || nullif(job.lane, ''))) AS its (key)
     WHERE job.status = 'RUNNING' AND its.key IS NOT NULL
     GROUP BY its.key
)
SELECT its.key_pattern, its.max_running, its.rate, its.burst, count(seen.key) AS keys_running,
       coalesce(sum(seen.jobs), 0)::bigint AS running, count(*) FILTER (WHERE seen.jobs >= its.max_running) AS keys_full
  FROM job_limit AS its
  LEFT JOIN (SELECT running.*, ruling.key_pattern FROM running CROSS JOIN LATERAL job_limit_of(running.key) AS ruling)
         AS seen USING (key_pattern)
 GROUP BY its.key_pattern
 ORDER BY its.key_pattern;


CREATE FUNCTION explain_limits_of_job(job snap_processing_job, OUT said text, OUT is_shut boolean)
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


-- As 0003 made it, with the limits said after the pause.
CREATE OR REPLACE FUNCTION explain_waiting_job(job snap_processing_job) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
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

    FOR seen IN SELECT * FROM explain_limits_of_job(job) LOOP
        is_held := is_held OR seen.is_shut;
        RETURN NEXT seen.said;
    END LOOP;

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


COMMENT ON TABLE job_limit IS 'Limits: INSERT INTO job_limit VALUES (''key:camera:*'', 3). Each queue and key that fits the pattern has the limit for itself; the most specific pattern rules.';
COMMENT ON COLUMN job_limit.key_pattern IS 'queue:NAME, or key:KEY for a concurrency key (in a fair queue also for a tenant); a * at the end stands for anything.';
COMMENT ON COLUMN job_limit.max_running IS 'So many run at once, claimed ones included; 0 stops it, null does not limit it.';
COMMENT ON COLUMN job_limit.rate IS 'So many attempts start a second on average; null does not limit it.';
COMMENT ON COLUMN job_limit.burst IS 'So many may start at once after a rest; null: as many as the rate allows in a second, at least one.';
COMMENT ON TABLE job_limit_key IS 'One row for each key a limit was found for: locked by the claim, and its token bucket. Rows come and go by themselves.';
COMMENT ON COLUMN job_limit_key.full_at IS 'When its token bucket is full again.';
COMMENT ON COLUMN job_queue.fair IS 'Lanes take turns, and a job without a concurrency key has its tenant for a lane (from when it is enqueued).';
COMMENT ON VIEW limit_overview IS 'Every limit, how many jobs run under it, and how many of its keys are full.';
COMMENT ON FUNCTION job_limit_of IS 'The limit that rules a key such as queue:media or key:camera:7, if any.';
COMMENT ON FUNCTION job_limit_room IS 'What a key may still start now, given how many of it run and when its bucket is full.';
COMMENT ON FUNCTION job_rules_changed IS 'Wakes the workers when limits or fair queues change.';
COMMENT ON FUNCTION explain_limits_of_job IS 'Which limits hold back a job that waits; see explain_job(id).';
