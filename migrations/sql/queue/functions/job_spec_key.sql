-- A unique key made of a job's work: the same kind and payload for the same tenant and snap are the same work, whatever
-- the order of names in the payload. Queue, priority, delay and limits are not part of the work.
CREATE FUNCTION job_spec_key(kind text, tenant text, payload jsonb, snap_id uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'spec:' || encode(sha256(convert_to(jsonb_build_array(kind, coalesce(tenant, ''), coalesce(payload, '{}'), snap_id)::text, 'UTF8')), 'hex')
$$;

COMMENT ON FUNCTION job_spec_key IS 'The unique key of a job that is enqueued with unique_by = ''spec''.';
