-- The outcomes and times of attempts, rolled up: one row for each kind and minute, and one for all kinds together,
-- whose kind is empty. Rows of a minute are merged into rows of ten minutes, and those into rows of an hour: a week
-- takes 450 rows for each kind.
CREATE TABLE job_history (
    at        timestamptz NOT NULL,
    minutes   integer NOT NULL CHECK (minutes IN (1, 10, 60)),
    kind      text NOT NULL COLLATE "C",
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    retried   bigint NOT NULL,
    waits     bigint[] NOT NULL,
    runs      bigint[] NOT NULL,
    PRIMARY KEY (minutes, at, kind)
) WITH (fillfactor = 80);  -- the row of this minute is written to again and again

COMMENT ON TABLE job_history IS 'How attempts ended and how long they took, within a minute, ten minutes or an hour; kept for a week. Each moment is in rows of one length only.';
COMMENT ON COLUMN job_history.at IS 'When the minute, the ten minutes or the hour began.';
COMMENT ON COLUMN job_history.minutes IS 'The minutes that the row covers: 1, 10 or 60.';
COMMENT ON COLUMN job_history.kind IS 'The kind; empty: all kinds together.';
COMMENT ON COLUMN job_history.completed IS 'Attempts that completed their job.';
COMMENT ON COLUMN job_history.failed IS 'Attempts after which their job was given up.';
COMMENT ON COLUMN job_history.cancelled IS 'Attempts that were stopped because somebody had cancelled their job.';
COMMENT ON COLUMN job_history.retried IS 'Attempts that failed and are repeated.';
COMMENT ON COLUMN job_history.waits IS 'How long the attempts had been due when they began, as job_histogram() counts: up to 1 ms, up to 1.4 ms, up to 2 ms, …';
COMMENT ON COLUMN job_history.runs IS 'How long the attempts ran, counted in the same way.';
