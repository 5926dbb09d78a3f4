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

COMMENT ON FUNCTION run_schedule IS 'Enqueues the job of a schedule now, in addition to its slots and even while it is paused; returns the job''s id.';
