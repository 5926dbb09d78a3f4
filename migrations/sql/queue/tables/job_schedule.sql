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
    CONSTRAINT reason_means_paused CHECK (paused_reason IS NULL OR paused_at IS NOT NULL),
    CONSTRAINT reason_is_short CHECK (length(paused_reason) <= 500)
);

COMMENT ON TABLE job_schedule IS 'What fires again and again: declared in code with @scheduled, written here by the workers that know it.';
COMMENT ON COLUMN job_schedule.name IS 'Its name, and the kind of its jobs.';
COMMENT ON COLUMN job_schedule.spec IS 'Five cron fields, or every Ns: the multiples of N seconds since 1970 in UTC; then perhaps from and until a time, both in. Changed by the worker that declared it last; workers with another spec fire nothing.';
COMMENT ON COLUMN job_schedule.tz IS 'On whose clocks the cron fields are read.';
COMMENT ON COLUMN job_schedule.queue IS 'Which queue its jobs wait in.';
COMMENT ON COLUMN job_schedule.payload IS 'What its jobs are given, besides schedule and slot.';
COMMENT ON COLUMN job_schedule.max_attempts IS 'After this many attempts a job of it is FAILED.';
COMMENT ON COLUMN job_schedule.missed IS 'What becomes of slots that no worker noticed in time: skip, once (the newest runs late) or all (the newest at_most run late).';
COMMENT ON COLUMN job_schedule.at_most IS 'How many missed slots run where missed is all.';
COMMENT ON COLUMN job_schedule.overlap IS 'Whether a slot fires while the job of the one before has not ended.';
COMMENT ON COLUMN job_schedule.settled_until IS 'Every slot from created_at up to here was fired or skipped, and stood in job_schedule_slot; of more than a thousand missed at once the older ones as one.';
COMMENT ON COLUMN job_schedule.paused_at IS 'Since when it is paused; see pause_schedule(name, reason).';
COMMENT ON COLUMN job_schedule.paused_reason IS 'Why, for whoever wonders.';
COMMENT ON COLUMN job_schedule.last_pause IS 'The pause before: slots within it are skipped, even when they are noticed later.';
COMMENT ON COLUMN job_schedule.created_at IS 'When it was first declared; its first slot is later.';
COMMENT ON COLUMN job_schedule.declared_at IS 'When a worker last declared it.';
COMMENT ON COLUMN job_schedule.declared_by IS 'The workers that declared it as it is now; one that is not in job_worker any more does not count.';
