-- Adds the job of a schedule, for a slot or for a person who runs the schedule now.
CREATE FUNCTION enqueue_scheduled_job(schedule job_schedule, slot timestamptz) RETURNS bigint LANGUAGE sql AS $$
    SELECT enqueue_job(
        kind => schedule.name, queue => schedule.queue, max_attempts => schedule.max_attempts,
        payload => schedule.payload || jsonb_build_object(
            'schedule', schedule.name,
            'slot', to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
$$;

COMMENT ON FUNCTION enqueue_scheduled_job IS 'Adds the job of a schedule for one slot. People call run_schedule(name).';
