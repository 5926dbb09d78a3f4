-- Refuses a job with a name that is too long, in words. It is STABLE so that job_specs is inlined.
CREATE FUNCTION job_refuse_long(job jsonb) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    its record;
BEGIN
    SELECT name, most, octet_length(job->>name) AS bytes INTO its
      FROM (VALUES ('kind', 200), ('queue', 200), ('tenant', 200), ('request_id', 200), ('unique_key', 500), ('concurrency_key', 500)) AS names (name, most)
     WHERE octet_length(job->>name) > most;
    RAISE EXCEPTION '% may have % bytes at most, not %', its.name, its.most, its.bytes USING ERRCODE = '22023';
END $$;

COMMENT ON FUNCTION job_refuse_long IS 'Refuses a job whose kind, queue or other name is too long; job_specs calls it.';
