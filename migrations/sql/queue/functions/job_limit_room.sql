-- How many jobs of a key may still start now: free places, tokens left, and the seconds until the next token. The first
-- three are those of `job_limit_of`. A bucket may be in debt, because its limit was lowered after tokens had been taken.
-- A function that returns a table becomes part of the statement that calls it: for a hundred keys that saves half a
-- millisecond of 7.6.
CREATE FUNCTION job_limit_room(max_running integer, rate double precision, burst integer, running bigint, full_at timestamptz)
    RETURNS TABLE (places bigint, tokens bigint, next_token_in double precision)
    LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN max_running IS NOT NULL THEN greatest(0, max_running - running) END,  -- greatest() skips nulls
           CASE WHEN left_over IS NOT NULL THEN greatest(0, floor(left_over + 1e-9)) END::bigint,
           greatest(0, 1 - left_over) / rate
      FROM (SELECT burst - rate * greatest(0, extract(epoch FROM full_at - clock_timestamp())::float8) AS left_over) AS its
$$;

COMMENT ON FUNCTION job_limit_room IS 'How many jobs may still start under a limit, given how many run and when its bucket is full.';
