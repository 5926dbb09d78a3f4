CREATE FUNCTION pause_queue(name text, reason text DEFAULT NULL, by text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    INSERT INTO job_queue AS q (name, paused_at, paused_reason, paused_by)
    VALUES (pause_queue.name, now(), reason, coalesce(pause_queue.by, session_user))
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, now()), paused_reason = excluded.paused_reason,
        paused_by = excluded.paused_by
$$;

COMMENT ON FUNCTION pause_queue IS 'Stops workers from claiming from a queue: SELECT pause_queue(''mail'', ''the server is away''). Running jobs go on.';
