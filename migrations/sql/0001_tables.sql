-- The queue: one wide, short-lived row a job, and the small tables beside it.

CREATE TABLE snap_processing_job (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind                text NOT NULL COLLATE "C",
    queue               text NOT NULL COLLATE "C" DEFAULT 'default',
    lane                text NOT NULL COLLATE "C" DEFAULT '',
    status              text NOT NULL COLLATE "C" DEFAULT 'PENDING',
    priority            integer NOT NULL DEFAULT 0,
    payload             jsonb NOT NULL DEFAULT '{}',
    snap_id             uuid,
    tenant              text NOT NULL COLLATE "C" DEFAULT '',
    attempt_count       integer NOT NULL DEFAULT 0,
    max_attempts        integer NOT NULL DEFAULT 3,
    next_retry_at       timestamptz NOT NULL DEFAULT now(),
    last_error          text,
    errors              jsonb NOT NULL DEFAULT '[]',
    claimed_by          text COLLATE "C",
    locked_at           timestamptz,
    lock_expires_at     timestamptz,
    lease_seq           bigint NOT NULL DEFAULT 0,
    interruptions       integer NOT NULL DEFAULT 0,
    suspect             boolean NOT NULL DEFAULT false,
    timeout_ms          integer,
    cancel_requested_at timestamptz,
    progress            jsonb,
    result              jsonb,
    spec_hash           bytea,
    unique_key          text COLLATE "C",
    unique_scope        text COLLATE "C",
    concurrency_key     text COLLATE "C",
    replay_of           bigint,
    request_id          text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,

    CONSTRAINT status_is_known CHECK (
        status IN ('PENDING', 'RUNNING', 'RETRY_WAIT', 'COMPLETED', 'FAILED', 'CANCELLED')),
    CONSTRAINT running_means_leased CHECK (
        num_nonnulls(claimed_by, locked_at, lock_expires_at) = CASE status WHEN 'RUNNING' THEN 3 ELSE 0 END),
    CONSTRAINT final_means_finished CHECK (
        (finished_at IS NOT NULL) = (status IN ('COMPLETED', 'FAILED', 'CANCELLED'))),
    CONSTRAINT attempts_are_sane CHECK (
        -- a running job has begun an attempt: one that has none to give back could not be handed back or recovered
        attempt_count >= (status = 'RUNNING')::integer AND max_attempts BETWEEN 1 AND 1000 AND interruptions >= 0 AND timeout_ms > 0),
    CONSTRAINT names_are_short CHECK (
        length(kind) BETWEEN 1 AND 200 AND length(queue) BETWEEN 1 AND 200 AND length(lane) <= 500
        AND length(tenant) <= 200 AND length(unique_key) <= 500 AND length(request_id) <= 200),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -1000 AND 1000),
    CONSTRAINT values_are_capped CHECK (
        -- 1 MiB of JSON, 64 KiB of progress: as jsonb a list of small numbers takes six times its text
        pg_column_size(payload) <= 6500000 AND pg_column_size(result) <= 6500000
        AND pg_column_size(progress) <= 410000 AND length(last_error) <= 4000),
    CONSTRAINT unique_key_has_a_scope CHECK (
        (unique_key IS NULL) = (unique_scope IS NULL) AND unique_scope IN ('waiting', 'live', 'ever')),
    CONSTRAINT concurrency_key_is_the_lane CHECK (lane = concurrency_key)
) WITH (
    -- a dense claim then finds room on the page: 96 % of the beats are HOT, 88 % at 85
    fillfactor = 70,
    -- a queue dies of dead tuples, so vacuum comes early and works without rests
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- The claim walks this index from lane to lane. Neither locked_at nor lock_expires_at is in any index:
-- one partial index on them and no beat is HOT any more.
CREATE INDEX snap_processing_job_waiting ON snap_processing_job
    (queue, kind, priority, lane, next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND NOT suspect;

CREATE INDEX snap_processing_job_suspect ON snap_processing_job (next_retry_at, id)
    WHERE suspect AND status IN ('PENDING', 'RETRY_WAIT');

CREATE INDEX snap_processing_job_running ON snap_processing_job (id) WHERE status = 'RUNNING';

CREATE INDEX snap_processing_job_failed ON snap_processing_job (id) WHERE status = 'FAILED';

CREATE INDEX snap_processing_job_snap ON snap_processing_job (snap_id, id) WHERE snap_id IS NOT NULL;

-- Never claimed: a job that comes back to wait must not meet one that took its key meanwhile, or nothing could
-- hand it back, retry it or recover it.
CREATE UNIQUE INDEX snap_processing_job_unique_waiting ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'waiting' AND status = 'PENDING' AND lease_seq = 0;

CREATE UNIQUE INDEX snap_processing_job_unique_live ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'live' AND status IN ('PENDING', 'RETRY_WAIT', 'RUNNING');

CREATE UNIQUE INDEX snap_processing_job_unique_ever ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'ever';


CREATE TABLE job_log (
    id       bigint GENERATED ALWAYS AS IDENTITY,
    job_id   bigint NOT NULL,
    attempt  integer NOT NULL,
    level    text NOT NULL DEFAULT 'INFO' CHECK (level IN ('DEBUG', 'INFO', 'WARNING', 'ERROR')),
    message  text NOT NULL CHECK (length(message) <= 4000),
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, id)  -- no foreign key: it would lock the busy row for every line; prune removes both
);

CREATE TABLE job_worker (
    id             text PRIMARY KEY COLLATE "C",
    name           text NOT NULL,
    host           text NOT NULL,
    machine        text NOT NULL,
    pid            integer NOT NULL,
    pid_started    bigint NOT NULL,
    queues         text[] NOT NULL,
    kinds          text[] NOT NULL,
    slots          integer NOT NULL,
    status         text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'DRAINING')),
    note           text,
    traces         text,
    memory_mb      integer NOT NULL DEFAULT 0,
    current_jobs   bigint[] NOT NULL DEFAULT '{}',
    jobs_claimed   bigint NOT NULL DEFAULT 0,
    jobs_completed bigint NOT NULL DEFAULT 0,
    jobs_failed    bigint NOT NULL DEFAULT 0,
    jobs_retried   bigint NOT NULL DEFAULT 0,
    jobs_recovered bigint NOT NULL DEFAULT 0,
    busy_ms        bigint NOT NULL DEFAULT 0,
    started_at     timestamptz NOT NULL DEFAULT now(),
    beat_at        timestamptz NOT NULL DEFAULT now(),
    expires_at     timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE job_worker_exit (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker_id      text NOT NULL,
    name           text NOT NULL,
    host           text NOT NULL,
    pid            integer NOT NULL,
    queues         text[] NOT NULL,
    reason         text NOT NULL,
    jobs_completed bigint NOT NULL,
    jobs_failed    bigint NOT NULL,
    started_at     timestamptz NOT NULL,
    exited_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE job_queue (
    name          text PRIMARY KEY COLLATE "C",
    fair          boolean NOT NULL DEFAULT false,
    paused_at     timestamptz,
    paused_reason text
);

CREATE TABLE job_limit (
    key_pattern text PRIMARY KEY COLLATE "C",
    max_running integer CHECK (max_running >= 0),
    rate        double precision CHECK (rate > 0),
    burst       integer CHECK (burst > 0)
);
