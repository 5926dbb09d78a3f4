CREATE TABLE job_command (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host        text NOT NULL COLLATE "C",
    action      text NOT NULL,
    pool        text,
    amount      integer,
    reason      text CHECK (length(reason) <= 500),
    source      text NOT NULL DEFAULT 'sql' CHECK (source IN ('sql', 'cli', 'api', 'autoscaler')),
    status      text NOT NULL DEFAULT 'PENDING'
                CHECK (status IN ('PENDING', 'TAKEN', 'EXECUTED', 'FAILED', 'EXPIRED')),
    output      text CHECK (length(output) <= 4000),
    master      text COLLATE "C",
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL DEFAULT now() + interval '1 minute',
    taken_at    timestamptz,
    finished_at timestamptz,
    CONSTRAINT ended_means_finished CHECK (
        (finished_at IS NOT NULL) = (status IN ('EXECUTED', 'FAILED', 'EXPIRED'))),
    CONSTRAINT taken_means_by_a_master CHECK (status NOT IN ('TAKEN', 'EXECUTED') OR num_nonnulls(master, taken_at) = 2)
);

CREATE INDEX job_command_open ON job_command (host, id) WHERE status IN ('PENDING', 'TAKEN');

COMMENT ON TABLE job_command IS 'Commands to supervisors, and their results; SELECT command_fleet(''pause'', ''mail-supervisor'') sends one.';
COMMENT ON COLUMN job_command.pool IS 'Which pool; null: all pools of the host.';
COMMENT ON COLUMN job_command.amount IS 'For scale: how many processes; null lets the pool''s balance decide again.';
COMMENT ON COLUMN job_command.status IS 'PENDING, TAKEN (by the supervisor in the column master), EXECUTED, FAILED or EXPIRED; a command is executed at most once.';
COMMENT ON COLUMN job_command.output IS 'The result in words.';
COMMENT ON COLUMN job_command.expires_at IS 'After this time no supervisor takes the command.';
