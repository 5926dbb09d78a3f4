-- The least amounts that 50, 95 and 99 % of the weight do not exceed. A null amount is not known and is left out.
CREATE FUNCTION job_percentiles(amounts double precision[], weights integer[],
                                OUT p50 double precision, OUT p95 double precision, OUT p99 double precision)
    LANGUAGE sql IMMUTABLE AS $$
    SELECT min(amount) FILTER (WHERE part >= 0.50), min(amount) FILTER (WHERE part >= 0.95),
           min(amount) FILTER (WHERE part >= 0.99)
      FROM (SELECT amount, sum(weight) OVER (ORDER BY amount ROWS UNBOUNDED PRECEDING) / sum(weight) OVER () AS part
              FROM unnest(amounts, weights::double precision[]) AS it (amount, weight)
             WHERE amount IS NOT NULL) AS ranked
$$;

COMMENT ON FUNCTION job_percentiles IS 'The 50th, 95th and 99th percentile of amounts that stand for several each.';
