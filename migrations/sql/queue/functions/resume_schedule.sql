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

COMMENT ON FUNCTION resume_schedule IS 'The opposite of pause_schedule. Slots that passed meanwhile are not made up for.';
