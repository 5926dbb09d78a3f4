CREATE FUNCTION job_span(span interval) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN seconds < 1 THEN round(seconds * 1000) || ' ms'
                WHEN seconds < 120 THEN floor(seconds) || ' s'
                WHEN seconds < 7200 THEN floor(seconds / 60) || ' min'
                WHEN seconds < 172800 THEN floor(seconds / 3600) || ' h'
                ELSE floor(seconds / 86400) || ' d' END
      FROM (SELECT abs(extract(epoch FROM span)) AS seconds) AS length
$$;

COMMENT ON FUNCTION job_span IS 'A duration in words, in the units of the commands, as explain_job(id) says it.';
