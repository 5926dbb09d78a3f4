CREATE TABLE job_worker (
    id               text PRIMARY KEY COLLATE "C",
    name             text NOT NULL,
    pool             text,
    master           text COLLATE "C",
    host             text NOT NULL,
    machine          text NOT NULL,
    pid              integer NOT NULL,
    pid_started      bigint NOT NULL,
    queues           text[] NOT NULL,
    kinds            text[] NOT NULL,
    held_kinds       jsonb NOT NULL DEFAULT '{}',
    rooms            jsonb NOT NULL DEFAULT '{}',
    slots            integer NOT NULL,
    status           text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'DRAINING')),
    note             text,
    traces           text,
    memory_mb        integer NOT NULL DEFAULT 0,
    free_mb          integer,
    current_jobs     bigint[] NOT NULL DEFAULT '{}',
    jobs_claimed     bigint NOT NULL DEFAULT 0,
    jobs_completed   bigint NOT NULL DEFAULT 0,
    jobs_failed      bigint NOT NULL DEFAULT 0,
    jobs_retried     bigint NOT NULL DEFAULT 0,
    jobs_recovered   bigint NOT NULL DEFAULT 0,
    busy_ms          bigint NOT NULL DEFAULT 0,
    context_switches bigint NOT NULL DEFAULT 0,
    context_failures bigint NOT NULL DEFAULT 0,
    max_jobs         integer,
    max_seconds      integer,
    max_memory_mb    integer,
    started_at       timestamptz NOT NULL DEFAULT now(),
    beat_at          timestamptz NOT NULL DEFAULT now(),
    expires_at       timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

COMMENT ON TABLE job_worker IS 'The roster: every process that works the queue, as of its last heartbeat.';
COMMENT ON COLUMN job_worker.pool IS 'The pool it belongs to; null: it was started by itself.';
COMMENT ON COLUMN job_worker.master IS 'The supervisor that started it (job_master.id).';
COMMENT ON COLUMN job_worker.machine IS 'Boot id and process namespace: on the same one, a dead pid is known to be dead.';
COMMENT ON COLUMN job_worker.held_kinds IS 'Kinds that it does not claim for want of memory, each with the reason.';
COMMENT ON COLUMN job_worker.rooms IS 'Where jobs run in it: thread, async, process, command, each with its slots and kinds.';
COMMENT ON COLUMN job_worker.note IS 'What holds it back, if anything does.';
COMMENT ON COLUMN job_worker.traces IS 'The file in which the process marks what it is running, read by whoever finds it dead.';
COMMENT ON COLUMN job_worker.free_mb IS 'Memory that jobs may still take, as of the last beat, the reserve left out; null: cannot be known here.';
COMMENT ON COLUMN job_worker.context_switches IS 'How often the application''s context (its tenant) was entered for a job, hooks included.';
COMMENT ON COLUMN job_worker.context_failures IS 'How often that failed; the attempt then fails with ContextFailed.';
COMMENT ON COLUMN job_worker.max_jobs IS 'After so many jobs it is replaced, between two jobs; null: never for that.';
COMMENT ON COLUMN job_worker.max_seconds IS 'Likewise after so long.';
COMMENT ON COLUMN job_worker.max_memory_mb IS 'Likewise when it is bigger than this.';
