CREATE TABLE job_kind (
    name         text PRIMARY KEY COLLATE "C",
    queue        text NOT NULL COLLATE "C",
    max_attempts integer NOT NULL CHECK (max_attempts BETWEEN 1 AND 1000),
    declared_at  timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE job_kind IS 'The defaults for new jobs of each kind, used if enqueue does not set them. Each worker writes them at its start, for the kinds that it knows.';
COMMENT ON COLUMN job_kind.name IS 'The kind.';
COMMENT ON COLUMN job_kind.queue IS 'The queue that its processor declares.';
COMMENT ON COLUMN job_kind.max_attempts IS 'The attempts that its processor declares, or the worker''s default.';
COMMENT ON COLUMN job_kind.declared_at IS 'When a worker last changed the declaration.';
