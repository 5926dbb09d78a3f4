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

COMMENT ON TABLE backup_run IS 'Backups and drills that ended, well or not. The doctor and the metrics judge by them.';
COMMENT ON COLUMN backup_run.id IS 'The id of the row.';
COMMENT ON COLUMN backup_run.what IS 'backup (one was made) or drill (one was restored on trial).';
COMMENT ON COLUMN backup_run.began_at IS 'When the backup or drill began.';
COMMENT ON COLUMN backup_run.ended_at IS 'When the backup or drill ended.';
COMMENT ON COLUMN backup_run.is_good IS 'Whether it succeeded.';
COMMENT ON COLUMN backup_run.said IS 'Its message: how much was copied, or what went wrong.';
