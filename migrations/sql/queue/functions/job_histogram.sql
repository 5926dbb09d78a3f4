-- Counts amounts, each of which stands for several, in buckets: up to 1 in the first, up to √2 in the second, up to 2
-- in the third. Amounts above 2^26.5 (26 hours in ms) are in the last bucket, the 54th. Empty buckets at the end are
-- left out.
CREATE FUNCTION job_histogram(amounts double precision[], weights integer[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE AS $$
    WITH counted AS (
        SELECT CASE WHEN amount <= 1 THEN 1 ELSE least(54, 1 + ceil(2 * ln(amount) / ln(2::float8) - 1e-9)::integer) END
               AS place, sum(weight) AS number
          FROM unnest(amounts, weights) AS it (amount, weight) WHERE amount IS NOT NULL GROUP BY 1
    )
    SELECT coalesce(array_agg(coalesce(number, 0)::bigint ORDER BY place), '{}')
      FROM generate_series(1, (SELECT max(place) FROM counted)) AS place LEFT JOIN counted USING (place)
$$;

COMMENT ON FUNCTION job_histogram IS 'Counts amounts in buckets that grow by the square root of two; job_histogram_sum() adds histograms.';
