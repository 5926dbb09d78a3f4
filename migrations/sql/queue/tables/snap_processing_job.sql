-- The queue: each job is one wide, short-lived row.
CREATE TABLE snap_processing_job (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind                text NOT NULL COLLATE "C",
    queue               text NOT NULL COLLATE "C" DEFAULT 'default',
    gate                text NOT NULL COLLATE "C" DEFAULT 'open',
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
    losses              integer NOT NULL DEFAULT 0,
    timeout_ms          integer,
    memory_mb           integer,
    cancel_requested_at timestamptz,
    progress            jsonb,
    result              jsonb,
    unique_key          text COLLATE "C",
    unique_scope        text COLLATE "C",
    concurrency_key     text COLLATE "C",
    replay_of           bigint,
    waits_for           integer,
    has_children        boolean NOT NULL DEFAULT false,
    request_id          text,
    traceparent         varchar(55) COLLATE "C",
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,

    -- Every statement on this table loads all of these constraints, at 4 µs for each kilobyte of their parsed form, so
    -- long ones cost time.
    CONSTRAINT status_is_known CHECK (
        CASE WHEN finished_at IS NULL THEN status IN ('PENDING', 'RUNNING', 'RETRY_WAIT')
             ELSE status IN ('COMPLETED', 'FAILED', 'CANCELLED') END),
    CONSTRAINT running_means_leased CHECK (
        num_nonnulls(claimed_by, locked_at, lock_expires_at) = CASE status WHEN 'RUNNING' THEN 3 ELSE 0 END),
    CONSTRAINT attempts_are_sane CHECK (
        -- a running job has begun an attempt: without one it could not be handed back or recovered
        attempt_count >= (status = 'RUNNING')::integer AND max_attempts BETWEEN 1 AND 1000 AND interruptions >= 0 AND losses >= 0
        AND timeout_ms > 0),
    CONSTRAINT names_are_short CHECK (  -- an entry of an index may have 2,700 bytes
        kind <> '' AND queue <> ''
        AND octet_length(concat(kind, queue, lane, concurrency_key, tenant, unique_key, request_id)) <= 2500),
    CONSTRAINT gate_is_known CHECK (gate IN ('open', 'held', 'later', 'alone') OR (gate = 'after' AND status <> 'RUNNING')),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -1000 AND 1000),
    CONSTRAINT payload_is_capped CHECK (
        -- 1 MiB of compact JSON; the blanks in jsonb's text add up to a half. Checked before the first claim only,
        -- because the payload does not change later, and not for payloads that are too short even with numbers like
        -- 1e131071.
        attempt_count > 0 OR pg_column_size(payload) <= 192 OR octet_length(payload::text) <= 1572864),
    CONSTRAINT values_are_capped CHECK (
        -- 1 MiB of result and 64 KiB of progress as JSON; as jsonb, a list of small numbers takes six times its text
        pg_column_size(result) <= 6500000 AND pg_column_size(progress) <= 410000 AND length(last_error) <= 4000),
    CONSTRAINT times_are_moments CHECK (  -- Python cannot read infinity; next_retry_at may be it: such a job is never due
        least(created_at, started_at, finished_at, locked_at, lock_expires_at, cancel_requested_at) >= '1970-01-01Z'
        AND greatest(created_at, started_at, finished_at, locked_at, lock_expires_at, cancel_requested_at) < '9900-01-01Z'),
    CONSTRAINT unique_key_has_a_scope CHECK (
        (unique_key IS NULL) = (unique_scope IS NULL) AND unique_scope IN ('waiting', 'live', 'ever'))
) WITH (
    -- leaves room on a page with many claimed jobs: 96 % of the beats are HOT; with 85 only 88 % are
    fillfactor = 70,
    -- dead tuples slow a queue down, so vacuum comes early and works without rests
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Uncompressed, so that pg_column_size says how many bytes a claim would return.
ALTER TABLE snap_processing_job ALTER COLUMN payload SET STORAGE EXTERNAL;

-- The jobs that any worker may claim, by queue, kind and priority, then by age. Neither locked_at nor lock_expires_at
-- is in any index: with one partial index on them, no beat would be HOT any more.
CREATE INDEX snap_processing_job_waiting ON snap_processing_job (queue, kind, priority, next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open';
-- The jobs that a limit or a fair queue holds: `held` jobs are due and begin lane by lane; `later` jobs are not due
-- yet.
CREATE INDEX snap_processing_job_held ON snap_processing_job (queue, kind, lane, priority DESC, next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held';
CREATE INDEX snap_processing_job_later ON snap_processing_job (next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later';
CREATE INDEX snap_processing_job_alone ON snap_processing_job (next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone';
-- The jobs that wait for other jobs; only people count and list them.
CREATE INDEX snap_processing_job_after ON snap_processing_job (queue, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after';
CREATE INDEX snap_processing_job_running ON snap_processing_job (id) WHERE status = 'RUNNING';
CREATE INDEX snap_processing_job_failed ON snap_processing_job (id) WHERE status = 'FAILED';
CREATE INDEX snap_processing_job_snap ON snap_processing_job (snap_id, id) WHERE snap_id IS NOT NULL;
-- The jobs that did the same work, in any status: only jobs enqueued with unique_by = 'spec' are in this index.
CREATE INDEX snap_processing_job_spec ON snap_processing_job (unique_key, id)
    WHERE unique_key >= 'spec:' AND unique_key < 'spec;';

-- Only jobs that were never claimed: a job that waits again must not collide with one that took its key meanwhile, or
-- it could not be handed back, retried or recovered.
CREATE UNIQUE INDEX snap_processing_job_unique_waiting ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'waiting' AND status = 'PENDING' AND lease_seq = 0;
CREATE UNIQUE INDEX snap_processing_job_unique_live ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'live' AND status IN ('PENDING', 'RETRY_WAIT', 'RUNNING');
CREATE UNIQUE INDEX snap_processing_job_unique_ever ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'ever';

CREATE TRIGGER job_after_insert AFTER INSERT ON snap_processing_job
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION job_after_insert();

-- For jobs that others wait for, even if a person ends them by hand. For other jobs a settle only tests this flag.
CREATE TRIGGER job_parent_changed AFTER UPDATE OF finished_at OR DELETE ON snap_processing_job
    FOR EACH ROW WHEN (OLD.has_children) EXECUTE FUNCTION job_parent_changed();
CREATE CONSTRAINT TRIGGER job_parents_changed AFTER UPDATE OF finished_at OR DELETE ON snap_processing_job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.has_children) EXECUTE FUNCTION job_parents_changed();

COMMENT ON TABLE snap_processing_job IS 'The job queue: one row for each job. Change status only through retry_job, cancel_job and the like: they keep the fence (lease_seq) right.';
COMMENT ON COLUMN snap_processing_job.id IS 'The id of the job; ascending.';
COMMENT ON COLUMN snap_processing_job.kind IS 'The kind, which says which processor runs the job. Jobs of a kind that no worker knows stay PENDING and are reported in queue_stuck.';
COMMENT ON COLUMN snap_processing_job.queue IS 'The queue of the job; see pause_queue(name, reason).';
COMMENT ON COLUMN snap_processing_job.gate IS 'How a waiting job can begin: open (any claim may take it), held (when a limit or a fair queue has room), later (as held, but not due yet), alone (a suspect, which runs alone) or after (when other jobs have ended).';
COMMENT ON COLUMN snap_processing_job.lane IS 'The lane of a job under a limit or in a fair queue: its concurrency key, or else its tenant in a fair queue. Lanes of a fair queue take turns.';
COMMENT ON COLUMN snap_processing_job.status IS 'PENDING, RUNNING, RETRY_WAIT (failed and will be retried), COMPLETED, FAILED (a dead letter) or CANCELLED.';
COMMENT ON COLUMN snap_processing_job.priority IS 'The priority, -1000 to 1000; higher runs first.';
COMMENT ON COLUMN snap_processing_job.payload IS 'The JSON object that the processor gets; at most 1 MiB.';
COMMENT ON COLUMN snap_processing_job.snap_id IS 'The snap this job works for, if any.';
COMMENT ON COLUMN snap_processing_job.tenant IS 'The tenant that the job works for; empty: none.';
COMMENT ON COLUMN snap_processing_job.attempt_count IS 'Attempts begun: counted by the claim, so a job that kills its worker uses them up too.';
COMMENT ON COLUMN snap_processing_job.max_attempts IS 'After this many attempts the job is FAILED.';
COMMENT ON COLUMN snap_processing_job.next_retry_at IS 'When the job is due: after a retry''s wait, or after the delay of a new job.';
COMMENT ON COLUMN snap_processing_job.last_error IS 'The last failure, at most 4,000 characters.';
COMMENT ON COLUMN snap_processing_job.errors IS 'One entry for each failed attempt, the last 20.';
COMMENT ON COLUMN snap_processing_job.claimed_by IS 'The worker that holds the job (job_worker.id); a worker''s id is new at every start.';
COMMENT ON COLUMN snap_processing_job.locked_at IS 'The last heartbeat of the worker that holds the job.';
COMMENT ON COLUMN snap_processing_job.lock_expires_at IS 'When the lease ends: without a heartbeat until then, other workers take the job back.';
COMMENT ON COLUMN snap_processing_job.lease_seq IS 'The fence: raised by every change of status, never reset. A write that names an older number changes nothing.';
COMMENT ON COLUMN snap_processing_job.interruptions IS 'How often a shutdown handed the job back while it ran.';
COMMENT ON COLUMN snap_processing_job.losses IS 'How often in a row its worker died while the job ran. From the second time on the job is a suspect.';
COMMENT ON COLUMN snap_processing_job.timeout_ms IS 'The time limit of the job; null: that of its kind.';
COMMENT ON COLUMN snap_processing_job.memory_mb IS 'The memory limit of the job in MB, instead of its kind''s; set after an attempt ran short of memory.';
COMMENT ON COLUMN snap_processing_job.cancel_requested_at IS 'When a person asked the job to stop.';
COMMENT ON COLUMN snap_processing_job.progress IS 'The progress that the processor last reported with update_progress.';
COMMENT ON COLUMN snap_processing_job.result IS 'What the processor returned.';
COMMENT ON COLUMN snap_processing_job.unique_key IS 'At most one job of this kind and tenant with this key within unique_scope; spec:… is the hash of its work (unique_by).';
COMMENT ON COLUMN snap_processing_job.unique_scope IS 'waiting (until first claimed), live (waiting or running) or ever.';
COMMENT ON COLUMN snap_processing_job.concurrency_key IS 'A label: jobs with the same key share the limits that name it (job_limit).';
COMMENT ON COLUMN snap_processing_job.replay_of IS 'The job that this one repeats.';
COMMENT ON COLUMN snap_processing_job.waits_for IS 'How many of its parents (job_parent) have not ended; null: it has no parents.';
COMMENT ON COLUMN snap_processing_job.has_children IS 'True: other jobs wait for it, or did; job_parent names them.';
COMMENT ON COLUMN snap_processing_job.request_id IS 'The request that caused it, for the logs.';
COMMENT ON COLUMN snap_processing_job.traceparent IS 'The place in a trace where the job was enqueued, in the form of W3C Trace Context; null: without traces.';
COMMENT ON COLUMN snap_processing_job.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN snap_processing_job.started_at IS 'When its last attempt began to run (not when it was claimed).';
COMMENT ON COLUMN snap_processing_job.finished_at IS 'When it ended for good.';
