CREATE FUNCTION resume_queue(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE job_queue SET paused_at = NULL, paused_reason = NULL, paused_by = NULL WHERE job_queue.name = resume_queue.name;
    SELECT pg_notify('snapapp_job', resume_queue.name);
$$;

COMMENT ON FUNCTION resume_queue IS 'Ends the pause of a queue: workers claim from it again.';
