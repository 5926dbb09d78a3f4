-- The queue: one wide, short-lived row a job.
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

    -- Every statement on this table reads all of these anew, 4 µs a kilobyte of their parsed form: a long one is felt.
    CONSTRAINT status_is_known CHECK (
        CASE WHEN finished_at IS NULL THEN status IN ('PENDING', 'RUNNING', 'RETRY_WAIT')
             ELSE status IN ('COMPLETED', 'FAILED', 'CANCELLED') END),
    CONSTRAINT running_means_leased CHECK (
        num_nonnulls(claimed_by, locked_at, lock_expires_at) = CASE status WHEN 'RUNNING' THEN 3 ELSE 0 END),
    CONSTRAINT attempts_are_sane CHECK (
        -- a running job has begun an attempt: one that has none to give back could not be handed back or recovered
        attempt_count >= (status = 'RUNNING')::integer AND max_attempts BETWEEN 1 AND 1000 AND interruptions >= 0 AND losses >= 0
        AND timeout_ms > 0),
    CONSTRAINT names_are_short CHECK (  -- an entry of an index may have 2,700 bytes
        kind <> '' AND queue <> ''
        AND octet_length(concat(kind, queue, lane, concurrency_key, tenant, unique_key, request_id)) <= 2500),
    CONSTRAINT gate_is_known CHECK (gate IN ('open', 'held', 'later', 'alone') OR (gate = 'after' AND status <> 'RUNNING')),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -1000 AND 1000),
    CONSTRAINT payload_is_capped CHECK (
        -- 1 MiB of compact JSON: the blanks of jsonb's own text add up to a half. Measured once, as nobody changes it
        -- after the first claim, and not at all where even numbers like 1e131071 could not make it so long.
        attempt_count > 0 OR pg_column_size(payload) <= 192 OR octet_length(payload::text) <= 1572864),
    CONSTRAINT values_are_capped CHECK (
        -- 1 MiB of JSON, 64 KiB of progress: as jsonb a list of small numbers takes six times its text
        pg_column_size(result) <= 6500000 AND pg_column_size(progress) <= 410000 AND length(last_error) <= 4000),
    CONSTRAINT unique_key_has_a_scope CHECK (
        (unique_key IS NULL) = (unique_scope IS NULL) AND unique_scope IN ('waiting', 'live', 'ever'))
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

-- Uncompressed, so that pg_column_size tells how much a claim would have to carry.
ALTER TABLE snap_processing_job ALTER COLUMN payload SET STORAGE EXTERNAL;

-- What any worker may claim, by what it is and then by age. Neither locked_at nor lock_expires_at is in any index:
-- one partial index on them and no beat is HOT any more.
CREATE INDEX snap_processing_job_waiting ON snap_processing_job (queue, kind, priority, next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open';
-- What a limit or a fair queue holds: due, and let in lane by lane; `later` those that are not due yet.
CREATE INDEX snap_processing_job_held ON snap_processing_job (queue, kind, lane, priority DESC, next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held';
CREATE INDEX snap_processing_job_later ON snap_processing_job (next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later';
CREATE INDEX snap_processing_job_alone ON snap_processing_job (next_retry_at, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone';
-- What waits for other jobs: only for people, who count it and list it.
CREATE INDEX snap_processing_job_after ON snap_processing_job (queue, id)
    WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after';
CREATE INDEX snap_processing_job_running ON snap_processing_job (id) WHERE status = 'RUNNING';
CREATE INDEX snap_processing_job_failed ON snap_processing_job (id) WHERE status = 'FAILED';
CREATE INDEX snap_processing_job_snap ON snap_processing_job (snap_id, id) WHERE snap_id IS NOT NULL;
-- The runs of one work, whatever became of them: only jobs that were enqueued with unique_by = 'spec' are in it.
CREATE INDEX snap_processing_job_spec ON snap_processing_job (unique_key, id)
    WHERE unique_key >= 'spec:' AND unique_key < 'spec;';

-- Never claimed: a job that comes back to wait must not meet one that took its key meanwhile, or nothing could
-- hand it back, retry it or recover it.
CREATE UNIQUE INDEX snap_processing_job_unique_waiting ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'waiting' AND status = 'PENDING' AND lease_seq = 0;
CREATE UNIQUE INDEX snap_processing_job_unique_live ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'live' AND status IN ('PENDING', 'RETRY_WAIT', 'RUNNING');
CREATE UNIQUE INDEX snap_processing_job_unique_ever ON snap_processing_job (kind, tenant, unique_key)
    WHERE unique_scope = 'ever';

CREATE TRIGGER job_after_insert AFTER INSERT ON snap_processing_job
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION job_after_insert();

-- Of a job that others wait for, also where people end it by hand. A settle of others asks this flag and nothing else.
CREATE TRIGGER job_parent_changed AFTER UPDATE OF finished_at OR DELETE ON snap_processing_job
    FOR EACH ROW WHEN (OLD.has_children) EXECUTE FUNCTION job_parent_changed();
CREATE CONSTRAINT TRIGGER job_parents_changed AFTER UPDATE OF finished_at OR DELETE ON snap_processing_job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.has_children) EXECUTE FUNCTION job_parents_changed();

COMMENT ON TABLE snap_processing_job IS 'The job queue: one row a job. Change status only through retry_job, cancel_job and their like: they keep the fence (lease_seq) right.';
COMMENT ON COLUMN snap_processing_job.id IS 'Identity; ascending, so pruning walks it.';
COMMENT ON COLUMN snap_processing_job.kind IS 'Which processor runs it. A kind that no worker knows stays PENDING and is reported in queue_stuck.';
COMMENT ON COLUMN snap_processing_job.queue IS 'Which queue it waits in; see pause_queue(name, reason).';
COMMENT ON COLUMN snap_processing_job.gate IS 'How it gets in while it waits: open (any claim takes it), held (a limit or a fair queue lets it in), later (the same, not due yet), alone (a suspect) or after (other jobs have to end first).';
COMMENT ON COLUMN snap_processing_job.lane IS 'Where a rule covers it: its concurrency key, else its tenant in a fair queue. Lanes of a fair queue take turns.';
COMMENT ON COLUMN snap_processing_job.status IS 'PENDING, RUNNING, RETRY_WAIT (failed, comes again), COMPLETED, FAILED (dead letter) or CANCELLED.';
COMMENT ON COLUMN snap_processing_job.priority IS 'Higher first, -1000 to 1000.';
COMMENT ON COLUMN snap_processing_job.payload IS 'What the processor is given; at most 1 MiB.';
COMMENT ON COLUMN snap_processing_job.snap_id IS 'The snap this job works for, if any.';
COMMENT ON COLUMN snap_processing_job.tenant IS 'On whose behalf; empty for the house itself.';
COMMENT ON COLUMN snap_processing_job.attempt_count IS 'Attempts begun: counted by the claim, so a job that kills its worker uses them up too.';
COMMENT ON COLUMN snap_processing_job.max_attempts IS 'After this many attempts the job is FAILED.';
COMMENT ON COLUMN snap_processing_job.next_retry_at IS 'When it may run next; also the delay of a new job.';
COMMENT ON COLUMN snap_processing_job.last_error IS 'The last failure, at most 4,000 characters.';
COMMENT ON COLUMN snap_processing_job.errors IS 'One entry for each failed attempt, the last 20.';
COMMENT ON COLUMN snap_processing_job.claimed_by IS 'The worker that holds it (job_worker.id); a fresh id at every process start.';
COMMENT ON COLUMN snap_processing_job.locked_at IS 'The last heartbeat of its holder.';
COMMENT ON COLUMN snap_processing_job.lock_expires_at IS 'Recovered after this if no heartbeat comes.';
COMMENT ON COLUMN snap_processing_job.lease_seq IS 'The fence: raised by every change of status, never reset. A write that names an older one does not land.';
COMMENT ON COLUMN snap_processing_job.interruptions IS 'How often a shutdown handed it back while it ran.';
COMMENT ON COLUMN snap_processing_job.losses IS 'How often its worker died while it ran, since it last came to an end of its own. From the second on it is a suspect.';
COMMENT ON COLUMN snap_processing_job.timeout_ms IS 'Its own time limit; the kind''s when null.';
COMMENT ON COLUMN snap_processing_job.memory_mb IS 'Its memory limit in MB, in the place of its kind''s, since an attempt ran short of memory.';
COMMENT ON COLUMN snap_processing_job.cancel_requested_at IS 'Somebody wants it to stop.';
COMMENT ON COLUMN snap_processing_job.progress IS 'What the processor last reported with update_progress.';
COMMENT ON COLUMN snap_processing_job.result IS 'What the processor returned.';
COMMENT ON COLUMN snap_processing_job.unique_key IS 'At most one job of this kind and tenant with this key within unique_scope; spec:… is the hash of its work (unique_by).';
COMMENT ON COLUMN snap_processing_job.unique_scope IS 'waiting (until first claimed), live (waiting or running) or ever.';
COMMENT ON COLUMN snap_processing_job.concurrency_key IS 'A label; jobs with one key share the limits that name it (job_limit).';
COMMENT ON COLUMN snap_processing_job.replay_of IS 'The job that this one repeats.';
COMMENT ON COLUMN snap_processing_job.waits_for IS 'How many of its parents (job_parent) are not over; null: it has none.';
COMMENT ON COLUMN snap_processing_job.has_children IS 'Other jobs wait for it, or did: job_parent names them.';
COMMENT ON COLUMN snap_processing_job.request_id IS 'The request that caused it, for the logs.';
COMMENT ON COLUMN snap_processing_job.traceparent IS 'Where in its trace it was enqueued, as W3C Trace Context writes it; null where nobody draws traces.';
COMMENT ON COLUMN snap_processing_job.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN snap_processing_job.started_at IS 'When its last attempt began to run (not when it was claimed).';
COMMENT ON COLUMN snap_processing_job.finished_at IS 'When it ended for good.';
