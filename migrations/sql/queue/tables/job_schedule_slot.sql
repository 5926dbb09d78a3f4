CREATE TABLE job_schedule_slot (
    schedule    text NOT NULL COLLATE "C" REFERENCES job_schedule (name) ON UPDATE CASCADE ON DELETE CASCADE,
    slot        timestamptz NOT NULL,
    outcome     text NOT NULL,
    why         text,
    job_id      bigint,  -- no foreign key: finished jobs are pruned before the ledger is
    worker      text COLLATE "C",
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- this key makes sure that only one process settles a slot
    PRIMARY KEY (schedule, slot),

    CONSTRAINT outcome_is_known CHECK (outcome IN ('fired', 'late', 'skipped')),
    CONSTRAINT fired_means_a_job CHECK ((job_id IS NOT NULL) = (outcome <> 'skipped')),
    CONSTRAINT skipped_says_why CHECK (outcome <> 'skipped' OR why IS NOT NULL),
    CONSTRAINT never_ahead_of_time CHECK (slot <= recorded_at)
);

CREATE INDEX job_schedule_slot_fired ON job_schedule_slot (schedule, slot) WHERE job_id IS NOT NULL;

COMMENT ON TABLE job_schedule_slot IS 'The ledger: the outcome of every slot of every schedule, with the reason. Kept for 90 days, at most the newest 10,000 slots of each schedule.';
COMMENT ON COLUMN job_schedule_slot.schedule IS 'The schedule that the slot belongs to.';
COMMENT ON COLUMN job_schedule_slot.slot IS 'When the slot was due; for a run by a person, when the person ran it.';
COMMENT ON COLUMN job_schedule_slot.outcome IS 'fired, late (fired, more than a minute after the slot) or skipped.';
COMMENT ON COLUMN job_schedule_slot.why IS 'The reason; null for a slot that fired in time.';
COMMENT ON COLUMN job_schedule_slot.job_id IS 'The job that was enqueued for the slot.';
COMMENT ON COLUMN job_schedule_slot.worker IS 'The worker (job_worker.id) that settled the slot; null: a person.';
COMMENT ON COLUMN job_schedule_slot.recorded_at IS 'When the row was written.';
