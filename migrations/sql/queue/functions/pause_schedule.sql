CREATE FUNCTION pause_schedule(name text, reason text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job_schedule
       SET paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = reason
     WHERE job_schedule.name = pause_schedule.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', name USING ERRCODE = 'P0002';
    END IF;
END $$;

COMMENT ON FUNCTION pause_schedule IS 'Pauses a schedule: its slots are skipped, with this reason in the ledger, until resume_schedule(name).';
