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
    CONSTRAINT times_are_moments CHECK (  -- infinity is none: Python cannot read it, and no schedule would be looked at
        settled_until BETWEEN '1970-01-01Z' AND '9900-01-01Z' AND paused_at BETWEEN '1970-01-01Z' AND '9900-01-01Z'),
    CONSTRAINT reason_means_paused CHECK (paused_reason IS NULL OR paused_at IS NOT NULL),
    CONSTRAINT reason_is_short CHECK (length(paused_reason) <= 500)
);

COMMENT ON TABLE job_schedule IS 'Schedules, declared in code with @scheduled and written here by the workers that know them.';
COMMENT ON COLUMN job_schedule.name IS 'Its name, and the kind of its jobs.';
COMMENT ON COLUMN job_schedule.spec IS 'Five cron fields, or every Ns (the multiples of N seconds since 1970 in UTC); then optionally from TIME and until TIME, both included. The worker that declares it last sets it; workers that declare another spec fire nothing.';
COMMENT ON COLUMN job_schedule.tz IS 'The time zone on whose clocks the cron fields are read.';
COMMENT ON COLUMN job_schedule.queue IS 'The queue of its jobs.';
COMMENT ON COLUMN job_schedule.payload IS 'The payload of its jobs; schedule and slot are added to it.';
COMMENT ON COLUMN job_schedule.max_attempts IS 'After this many attempts a job of the schedule is FAILED.';
COMMENT ON COLUMN job_schedule.missed IS 'What happens with slots that no worker noticed in time: skip, once (the newest runs late) or all (the newest at_most run late).';
COMMENT ON COLUMN job_schedule.at_most IS 'How many missed slots run if missed is all.';
COMMENT ON COLUMN job_schedule.overlap IS 'Whether a slot fires while the job of an earlier slot has not ended.';
COMMENT ON COLUMN job_schedule.settled_until IS 'Every slot from created_at up to this time was fired or skipped, and was written to job_schedule_slot; if more than a thousand were missed at once, one row stands for the older ones.';
COMMENT ON COLUMN job_schedule.paused_at IS 'When it was paused; null: it is not paused. See pause_schedule(name, reason).';
COMMENT ON COLUMN job_schedule.paused_reason IS 'The reason that the person gave for the pause.';
COMMENT ON COLUMN job_schedule.last_pause IS 'The time of the previous pause: slots within it are skipped, even if they are noticed later.';
COMMENT ON COLUMN job_schedule.created_at IS 'When the schedule was first declared; its first slot is after this time.';
COMMENT ON COLUMN job_schedule.declared_at IS 'When a worker last declared the schedule.';
COMMENT ON COLUMN job_schedule.declared_by IS 'The workers that declared the schedule as it is now; a worker that is no longer in job_worker does not count.';
