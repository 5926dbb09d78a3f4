-- The token bucket of each key with a rate, as a single moment: what is missing until then, at the rate, was taken.
CREATE TABLE job_limit_key (
    key     text PRIMARY KEY COLLATE "C",
    full_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

COMMENT ON TABLE job_limit_key IS 'The token bucket of each key that a rate was found for. Rows come and go by themselves.';
COMMENT ON COLUMN job_limit_key.full_at IS 'When its token bucket is full again.';
