-- Schedules: what the code declares, and the ledger of what became of every slot.

CREATE TABLE job_schedule (
    name          text PRIMARY KEY COLLATE "C",
    spec          text NOT NULL,
    tz            text NOT NULL DEFAULT 'UTC',
    queue         text NOT NULL COLLATE "C" DEFAULT 'default',
    payload       jsonb NOT NULL DEFAULT '{}',
    max_attempts  integer NOT NULL DEFAULT 3,
    missed        text NOT NULL DEFAULT 'once',
    at_most       integer NOT NULL DEFAULT 10,
    overlap       boolean NOT NULL DEFAULT false,
    settled_until timestamptz NOT NULL DEFAULT now(),
    paused_at     timestamptz,
    paused_reason text,
    last_pause    tstzrange,
    created_at    timestamptz NOT NULL DEFAULT now(),
    declared_at   timestamptz NOT NULL DEFAULT now(),
    declared_by   text[] NOT NULL DEFAULT '{}' COLLATE "C",

    CONSTRAINT names_are_short CHECK (
        length(name) BETWEEN 1 AND 200 AND length(queue) BETWEEN 1 AND 200
        AND length(spec) BETWEEN 1 AND 500 AND length(tz) BETWEEN 1 AND 100),
    CONSTRAINT payload_is_an_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT attempts_are_sane CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT missed_is_known CHECK (missed IN ('skip', 'once', 'all') AND at_most BETWEEN 1 AND 1000),
    CONSTRAINT reason_means_paused CHECK (paused_reason IS NULL OR paused_at IS NOT NULL)
);

CREATE TABLE job_schedule_slot (
    schedule    text NOT NULL COLLATE "C" REFERENCES job_schedule (name) ON UPDATE CASCADE ON DELETE CASCADE,
    slot        timestamptz NOT NULL,
    outcome     text NOT NULL,
    why         text,
    job_id      bigint,  -- no foreign key: finished jobs are pruned before the ledger is
    worker      text COLLATE "C",
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- what decides between processes: a slot is written down once, with its job or without
    PRIMARY KEY (schedule, slot),

    CONSTRAINT outcome_is_known CHECK (outcome IN ('fired', 'late', 'skipped')),
    CONSTRAINT fired_means_a_job CHECK ((job_id IS NOT NULL) = (outcome <> 'skipped')),
    CONSTRAINT skipped_says_why CHECK (outcome <> 'skipped' OR why IS NOT NULL),
    CONSTRAINT never_ahead_of_time CHECK (slot <= recorded_at)
);

CREATE INDEX job_schedule_slot_fired ON job_schedule_slot (schedule, slot) WHERE job_id IS NOT NULL;


CREATE FUNCTION pause_schedule(name text, reason text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job_schedule
       SET paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = reason
     WHERE job_schedule.name = pause_schedule.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
END $$;

CREATE FUNCTION resume_schedule(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- the range is kept, because slots within it may not have been looked at yet: they too were paused
    UPDATE job_schedule
       SET last_pause = CASE WHEN paused_at IS NULL THEN last_pause
                             ELSE tstzrange(paused_at, greatest(paused_at, clock_timestamp()), '[]') END,
           paused_at = NULL, paused_reason = NULL
     WHERE job_schedule.name = resume_schedule.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
END $$;


-- The job that a schedule means, for a slot or for a person who wants it now.
CREATE FUNCTION enqueue_scheduled_job(schedule job_schedule, slot timestamptz) RETURNS bigint LANGUAGE sql AS $$
    SELECT enqueue_job(
        kind => schedule.name, queue => schedule.queue, max_attempts => schedule.max_attempts,
        payload => schedule.payload || jsonb_build_object(
            'schedule', schedule.name,
            'slot', to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
$$;

CREATE FUNCTION run_schedule(name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    its job_schedule;
    moment timestamptz;
    new_job bigint;
BEGIN
    SELECT * INTO its FROM job_schedule WHERE job_schedule.name = run_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
    moment := clock_timestamp();
    new_job := enqueue_scheduled_job(its, moment);
    INSERT INTO job_schedule_slot (schedule, slot, outcome, why, job_id)
    VALUES (its.name, moment, 'fired', 'a person wanted it now', new_job);
    RETURN new_job;
END $$;


CREATE VIEW schedule_overview AS
SELECT its.name, its.spec, its.tz, its.queue, its.missed, its.overlap, its.paused_at, its.paused_reason,
       (SELECT count(*) FROM job_worker WHERE id = ANY (its.declared_by) AND expires_at > now()) AS workers,
       last.slot AS last_slot, last.outcome AS last_outcome, last.why AS last_why,
       fired.slot AS last_fired, fired.job_id AS last_job, job.status AS last_job_status,
       its.settled_until, its.created_at, its.declared_at
  FROM job_schedule AS its
  LEFT JOIN LATERAL (SELECT * FROM job_schedule_slot WHERE schedule = its.name ORDER BY slot DESC LIMIT 1)
       AS last ON true
  LEFT JOIN LATERAL (SELECT * FROM job_schedule_slot WHERE schedule = its.name AND job_id IS NOT NULL
                      ORDER BY slot DESC LIMIT 1) AS fired ON true
  LEFT JOIN snap_processing_job AS job ON job.id = fired.job_id
 ORDER BY its.name;


COMMENT ON TABLE job_schedule IS 'What fires again and again: declared in code with @scheduled, written here by the workers that know it.';
COMMENT ON COLUMN job_schedule.name IS 'Its name, and the kind of its jobs.';
COMMENT ON COLUMN job_schedule.spec IS 'Five cron fields, or every Ns: the multiples of N seconds since 1970 in UTC. Changed by the worker that declared it last; workers with another spec fire nothing.';
COMMENT ON COLUMN job_schedule.tz IS 'On whose clocks the cron fields are read.';
COMMENT ON COLUMN job_schedule.queue IS 'Which queue its jobs wait in.';
COMMENT ON COLUMN job_schedule.payload IS 'What its jobs are given, besides schedule and slot.';
COMMENT ON COLUMN job_schedule.max_attempts IS 'After this many attempts a job of it is FAILED.';
COMMENT ON COLUMN job_schedule.missed IS 'What becomes of slots that no worker noticed in time: skip, once (the newest runs late) or all (the newest at_most run late).';
COMMENT ON COLUMN job_schedule.at_most IS 'How many missed slots run where missed is all.';
COMMENT ON COLUMN job_schedule.overlap IS 'Whether a slot fires while the job of the one before has not ended.';
COMMENT ON COLUMN job_schedule.settled_until IS 'Every slot from created_at up to here was fired or skipped, and stood in job_schedule_slot.';
COMMENT ON COLUMN job_schedule.paused_at IS 'Since when it is paused; see pause_schedule(name, reason).';
COMMENT ON COLUMN job_schedule.paused_reason IS 'Why, for whoever wonders.';
COMMENT ON COLUMN job_schedule.last_pause IS 'The pause before: slots within it are skipped, even when they are noticed later.';
COMMENT ON COLUMN job_schedule.created_at IS 'When it was first declared; its first slot is later.';
COMMENT ON COLUMN job_schedule.declared_at IS 'When a worker last declared it.';
COMMENT ON COLUMN job_schedule.declared_by IS 'The workers that declared it as it is now; one that is not in job_worker any more does not count.';

COMMENT ON TABLE job_schedule_slot IS 'The ledger: what became of every slot of every schedule, and why. Kept for 90 days, at most the newest 10,000 of each.';
COMMENT ON COLUMN job_schedule_slot.schedule IS 'Whose slot it is.';
COMMENT ON COLUMN job_schedule_slot.slot IS 'When it was due; for a run that a person wanted, when that was.';
COMMENT ON COLUMN job_schedule_slot.outcome IS 'fired, late (fired, more than a minute after the slot) or skipped.';
COMMENT ON COLUMN job_schedule_slot.why IS 'The reason, for everything but a slot that fired in time.';
COMMENT ON COLUMN job_schedule_slot.job_id IS 'The job that it enqueued.';
COMMENT ON COLUMN job_schedule_slot.worker IS 'The worker (job_worker.id) that wrote this down; null: a person.';
COMMENT ON COLUMN job_schedule_slot.recorded_at IS 'When this was written down.';

COMMENT ON VIEW schedule_overview IS 'Every schedule with its last slot and its last job; workers = 0 means that nobody alive declares it, so nothing fires.';

COMMENT ON FUNCTION pause_schedule IS 'Its slots are skipped, with this reason in the ledger, until resume_schedule(name).';
COMMENT ON FUNCTION resume_schedule IS 'The opposite of pause_schedule. Slots that passed meanwhile are not made up for.';
COMMENT ON FUNCTION run_schedule IS 'Enqueues its job now, besides its slots and even while it is paused; returns the job''s id.';
COMMENT ON FUNCTION enqueue_scheduled_job IS 'Adds the job of a schedule for one slot; run_schedule(name) is what people call.';
