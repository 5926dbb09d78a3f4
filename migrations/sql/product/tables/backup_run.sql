CREATE TABLE backup_run (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what     text NOT NULL COLLATE "C",
    began_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT now(),
    is_good  boolean NOT NULL,
    said     text NOT NULL,

    CONSTRAINT what_is_known CHECK (what IN ('backup', 'drill')),
    CONSTRAINT said_is_short CHECK (length(said) <= 1000)
);

CREATE INDEX backup_run_newest ON backup_run (what, ended_at DESC);

COMMENT ON TABLE backup_run IS 'Backups and drills that ended, well or not: what the doctor and the metrics go by.';
COMMENT ON COLUMN backup_run.id IS 'Identity.';
COMMENT ON COLUMN backup_run.what IS 'backup: one was made; drill: one was restored on trial.';
COMMENT ON COLUMN backup_run.began_at IS 'When it began.';
COMMENT ON COLUMN backup_run.ended_at IS 'When it ended.';
COMMENT ON COLUMN backup_run.is_good IS 'Whether it came to its end.';
COMMENT ON COLUMN backup_run.said IS 'What it had to say: how much there was, or what went wrong.';
