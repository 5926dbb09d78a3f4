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
    executors        jsonb NOT NULL DEFAULT '{}',
    slots            integer NOT NULL,
    status           text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'DRAINING')),
    note             text,
    state_file       text,
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
COMMENT ON COLUMN job_worker.pool IS 'The pool of the worker; null: it was not started by a supervisor.';
COMMENT ON COLUMN job_worker.master IS 'The supervisor that started it (job_master.id).';
COMMENT ON COLUMN job_worker.machine IS 'Boot id and process namespace: within the same one it can be seen whether a pid is alive.';
COMMENT ON COLUMN job_worker.held_kinds IS 'The kinds that it does not claim because memory is short, each with the reason.';
COMMENT ON COLUMN job_worker.executors IS 'Its executors (thread, async, process, command), each with its slots and kinds.';
COMMENT ON COLUMN job_worker.note IS 'What keeps the worker from working as usual; null: nothing.';
COMMENT ON COLUMN job_worker.state_file IS 'The file in which the process notes what it is running; the process that finds it dead reads the file.';
COMMENT ON COLUMN job_worker.free_mb IS 'Memory that jobs may still take, as of the last heartbeat, without the reserve; null: not known on this system.';
COMMENT ON COLUMN job_worker.context_switches IS 'How often the application''s context hook (which sets the tenant) was entered for a job or its hooks.';
COMMENT ON COLUMN job_worker.context_failures IS 'How often the context hook failed; the attempt then fails with ContextFailed.';
COMMENT ON COLUMN job_worker.max_jobs IS 'The worker is replaced after so many jobs, between two jobs; null: no such limit.';
COMMENT ON COLUMN job_worker.max_seconds IS 'The worker is replaced after so many seconds, between two jobs; null: no such limit.';
COMMENT ON COLUMN job_worker.max_memory_mb IS 'The worker is replaced when it uses more memory, between two jobs; null: no such limit.';
