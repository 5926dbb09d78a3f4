-- The token bucket of each key with a rate, stored as the moment when it is full again: the tokens that the rate adds
-- until that moment are the ones that were taken.
CREATE TABLE job_limit_key (
    key     text PRIMARY KEY COLLATE "C",
    full_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

COMMENT ON TABLE job_limit_key IS 'The token bucket of each key with a rate. The queue adds and deletes the rows.';
COMMENT ON COLUMN job_limit_key.full_at IS 'When the token bucket of the key is full again.';
