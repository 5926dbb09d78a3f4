CREATE FUNCTION resume_schedule(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- the range of the pause is kept, because some of its slots may not have been settled yet: they are skipped too
    UPDATE job_schedule
       SET last_pause = CASE WHEN paused_at IS NULL THEN last_pause
                             ELSE tstzrange(paused_at, greatest(paused_at, clock_timestamp()), '[]') END,
           paused_at = NULL, paused_reason = NULL
     WHERE job_schedule.name = resume_schedule.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
END $$;

COMMENT ON FUNCTION resume_schedule IS 'Ends the pause of a schedule. Slots that passed during the pause do not run later.';
