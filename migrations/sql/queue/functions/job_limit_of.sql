-- The limit of a key: the one with exactly this key, else the longest pattern that the key begins with.
CREATE FUNCTION job_limit_of(its_key text)
    RETURNS TABLE (key_pattern text, max_running integer, rate double precision, burst integer)
    LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        SELECT key_pattern, max_running, rate, coalesce(burst, greatest(1, ceil(rate))::integer)
          FROM job_limit WHERE key_pattern = its_key
      UNION ALL
        (SELECT key_pattern, max_running, rate, coalesce(burst, greatest(1, ceil(rate))::integer)
           FROM job_limit WHERE right(key_pattern, 1) = '*' AND starts_with(its_key, left(key_pattern, -1))
          ORDER BY length(key_pattern) DESC LIMIT 1)) AS fitting
     LIMIT 1
$$;

COMMENT ON FUNCTION job_limit_of IS 'The limit that applies to a key such as queue:media or key:camera:7; null: none.';
