-- Failures are grouped by this line. It is cut, because a first line may be as long as the whole error.
CREATE FUNCTION job_error_line(last_error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(split_part(coalesce(last_error, ''), chr(10), 1), 300)
$$;

COMMENT ON FUNCTION job_error_line IS 'The first line of an error, at most 300 characters. Failures are grouped by it.';
