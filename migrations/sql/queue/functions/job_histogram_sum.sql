CREATE FUNCTION job_histogram_sum(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(coalesce(a, 0) + coalesce(b, 0) ORDER BY place), '{}')
      FROM unnest(one, other) WITH ORDINALITY AS both_of_them (a, b, place)
$$;

COMMENT ON FUNCTION job_histogram_sum IS 'Adds two histograms of job_histogram().';
