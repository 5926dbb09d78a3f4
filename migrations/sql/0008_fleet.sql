-- The fleet: one master a host, its pools of worker processes, what they are told, and why they were scaled.

ALTER TABLE job_worker
    ADD COLUMN pool          text,
    ADD COLUMN master        text COLLATE "C",
    ADD COLUMN max_jobs      integer,
    ADD COLUMN max_seconds   integer,
    ADD COLUMN max_memory_mb integer;

ALTER TABLE job_worker_exit ADD COLUMN pool text;

CREATE TABLE job_master (
    host        text PRIMARY KEY COLLATE "C" CHECK (length(host) BETWEEN 1 AND 200),
    id          text NOT NULL COLLATE "C",
    machine     text NOT NULL,
    pid         integer NOT NULL,
    pid_started bigint NOT NULL,
    status      text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'STOPPING')),
    note        text,
    started_at  timestamptz NOT NULL DEFAULT now(),
    beat_at     timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE job_pool (
    host          text NOT NULL COLLATE "C",
    name          text NOT NULL COLLATE "C" CHECK (length(name) BETWEEN 1 AND 200),
    queues        text[] NOT NULL,
    balance       text NOT NULL CHECK (balance IN ('off', 'simple', 'auto')),
    min_processes integer NOT NULL,
    max_processes integer NOT NULL,
    state         text NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'PAUSED', 'DRAINED')),
    state_reason  text,
    fixed_at      integer CHECK (fixed_at >= 0),
    wanted        integer NOT NULL DEFAULT 0,
    present       integer NOT NULL DEFAULT 0,
    leaving       integer NOT NULL DEFAULT 0,
    note          text,
    seen_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host, name),
    CONSTRAINT pool_bounds_are_sane CHECK (min_processes >= 0 AND max_processes >= greatest(1, min_processes))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

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

CREATE TABLE job_scaling (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    host    text NOT NULL COLLATE "C",
    pool    text NOT NULL COLLATE "C",
    balance text NOT NULL,
    present integer NOT NULL,
    wanted  integer NOT NULL,
    reason  text NOT NULL,
    inputs  jsonb NOT NULL
);

CREATE INDEX job_scaling_of_pool ON job_scaling (host, pool, id);

CREATE TABLE job_tenant_switch (
    worker_id   text NOT NULL COLLATE "C",
    from_tenant text NOT NULL COLLATE "C",
    to_tenant   text NOT NULL COLLATE "C",
    switches    bigint NOT NULL,
    last_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (worker_id, from_tenant, to_tenant)
);


-- What a host is told, whoever tells it. The host may be left out where there is only one.
CREATE FUNCTION command_fleet(
    action text,
    pool text DEFAULT NULL,
    amount integer DEFAULT NULL,
    reason text DEFAULT NULL,
    host text DEFAULT NULL,
    source text DEFAULT 'sql',
    expires_in interval DEFAULT '1 minute'
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    hosts text[] := ARRAY(SELECT its.host FROM job_master AS its ORDER BY its.host);
    addressed text := coalesce(command_fleet.host, CASE WHEN cardinality(hosts) = 1 THEN hosts[1] END);
    new_id bigint;
BEGIN
    IF (command_fleet.action IN ('scale', 'restart', 'pause', 'resume', 'drain', 'stop')) IS NOT TRUE THEN
        RAISE EXCEPTION 'a fleet can be told to scale, restart, pause, resume, drain or stop, not to %',
            coalesce(command_fleet.action, 'null') USING ERRCODE = '22023';
    ELSIF command_fleet.action = 'scale' AND command_fleet.pool IS NULL THEN
        RAISE EXCEPTION 'say which pool to scale' USING ERRCODE = '22023';
    ELSIF command_fleet.action = 'stop' AND command_fleet.pool IS NOT NULL THEN
        RAISE EXCEPTION 'stop ends the whole supervisor of a host; to empty the pool % alone, drain it', command_fleet.pool
            USING ERRCODE = '22023';
    ELSIF command_fleet.amount IS NOT NULL AND command_fleet.action <> 'scale' THEN
        RAISE EXCEPTION 'only scale takes a number of processes' USING ERRCODE = '22023';
    ELSIF command_fleet.amount < 0 THEN
        RAISE EXCEPTION 'there cannot be % processes', command_fleet.amount USING ERRCODE = '22023';
    ELSIF cardinality(hosts) = 0 THEN
        RAISE EXCEPTION 'no supervisor has been seen on any host' USING ERRCODE = 'P0002';
    ELSIF addressed IS NULL THEN
        RAISE EXCEPTION 'say which host: there are %', array_to_string(hosts, ', ') USING ERRCODE = '22023';
    ELSIF addressed <> ALL (hosts) THEN
        RAISE EXCEPTION 'no supervisor has been seen on the host %; there are %', addressed, array_to_string(hosts, ', ')
            USING ERRCODE = 'P0002';
    ELSIF command_fleet.pool IS NOT NULL
          AND NOT EXISTS (SELECT FROM job_pool AS its WHERE its.host = addressed AND its.name = command_fleet.pool) THEN
        RAISE EXCEPTION 'there is no pool % on the host %; there are %', command_fleet.pool, addressed, coalesce(
            (SELECT string_agg(its.name, ', ' ORDER BY its.name) FROM job_pool AS its WHERE its.host = addressed), 'none')
            USING ERRCODE = 'P0002';
    END IF;
    INSERT INTO job_command (host, action, pool, amount, reason, source, expires_at)
    VALUES (addressed, command_fleet.action, command_fleet.pool, command_fleet.amount, command_fleet.reason,
            command_fleet.source, clock_timestamp() + command_fleet.expires_in)
    RETURNING id INTO new_id;
    PERFORM pg_notify('snapapp_fleet', addressed);
    RETURN new_id;
END $$;


CREATE VIEW fleet_overview AS
SELECT master.host, CASE WHEN master.expires_at < now() THEN 'LOST' ELSE master.status END AS master,
       pool.name AS pool, pool.state, pool.state_reason, pool.queues, pool.balance, pool.fixed_at,
       pool.min_processes, pool.max_processes, pool.wanted, pool.present, pool.leaving, workers.slots, workers.running,
       workers.memory_mb, workers.jobs_completed, workers.jobs_failed, coalesce(pool.note, master.note) AS note,
       master.pid, master.started_at, master.beat_at
  FROM job_master AS master
  LEFT JOIN job_pool AS pool USING (host)
  LEFT JOIN LATERAL (
      SELECT sum(slots) AS slots, sum(cardinality(current_jobs)) AS running, sum(memory_mb) AS memory_mb,
             sum(jobs_completed) AS jobs_completed, sum(jobs_failed) AS jobs_failed
        FROM job_worker
       WHERE job_worker.host = master.host AND job_worker.pool = pool.name AND job_worker.expires_at > now()) AS workers ON true
 ORDER BY master.host, pool.name;

CREATE VIEW command_overview AS
SELECT command.id, command.host, command.action, command.pool, command.amount, command.reason, command.source,
       CASE WHEN command.status = 'PENDING' AND command.expires_at <= now() THEN 'EXPIRED' ELSE command.status END AS status,
       coalesce(command.output, CASE
           WHEN command.status IN ('PENDING', 'TAKEN') AND coalesce(master.expires_at < now(), true)
           THEN 'the host ' || command.host || ' does not answer'
                || coalesce(': last heard of ' || job_span(now() - master.beat_at) || ' ago', '')
           WHEN command.status = 'PENDING' AND command.expires_at <= now() THEN 'nobody took it in time' END) AS output,
       command.created_at, command.expires_at, command.taken_at, command.finished_at
  FROM job_command AS command
  LEFT JOIN job_master AS master USING (host);


COMMENT ON COLUMN job_worker.pool IS 'The pool it belongs to; null: it was started by itself.';
COMMENT ON COLUMN job_worker.master IS 'The supervisor that started it (job_master.id).';
COMMENT ON COLUMN job_worker.max_jobs IS 'After so many jobs it is replaced, between two jobs; null: never for that.';
COMMENT ON COLUMN job_worker.max_seconds IS 'Likewise after so long.';
COMMENT ON COLUMN job_worker.max_memory_mb IS 'Likewise when it is bigger than this.';
COMMENT ON COLUMN job_worker_exit.pool IS 'The pool it belonged to.';
COMMENT ON TABLE job_master IS 'The supervisors: one a host; `snapapp supervisor` is such a process.';
COMMENT ON COLUMN job_master.host IS 'The name of its host, by which it is told things.';
COMMENT ON COLUMN job_master.id IS 'Fresh at every start.';
COMMENT ON COLUMN job_master.machine IS 'Boot id and process namespace: on the same one, a dead pid is known to be dead.';
COMMENT ON COLUMN job_master.pid_started IS 'When its process started, in the kernel''s ticks: a reused pid is not mistaken for it.';
COMMENT ON COLUMN job_master.note IS 'What a person should know about it.';
COMMENT ON COLUMN job_master.expires_at IS 'Taken for lost after this, if no heartbeat comes.';
COMMENT ON TABLE job_pool IS 'The pools of every host: what was planned, what a person changed, and how it stands as of seen_at.';
COMMENT ON COLUMN job_pool.queues IS 'The queues it works; none named: all of them.';
COMMENT ON COLUMN job_pool.balance IS 'off (always max_processes), simple (by what waits) or auto.';
COMMENT ON COLUMN job_pool.state IS 'ACTIVE, PAUSED (its workers live and claim nothing) or DRAINED (it has none).';
COMMENT ON COLUMN job_pool.state_reason IS 'Why somebody paused or drained it.';
COMMENT ON COLUMN job_pool.fixed_at IS 'A person fixed it at so many processes; null: balance decides.';
COMMENT ON COLUMN job_pool.wanted IS 'How many processes it should have now.';
COMMENT ON COLUMN job_pool.present IS 'How many it has that do not leave.';
COMMENT ON COLUMN job_pool.leaving IS 'How many are finishing their last jobs.';
COMMENT ON COLUMN job_pool.note IS 'What holds it back, if anything does.';
COMMENT ON TABLE job_command IS 'What supervisors were told, and what came of it; SELECT command_fleet(''pause'', ''mail-supervisor'') tells one.';
COMMENT ON COLUMN job_command.pool IS 'Which pool; null: all pools of the host.';
COMMENT ON COLUMN job_command.amount IS 'Of scale: how many processes; null gives the decision back to the pool''s balance.';
COMMENT ON COLUMN job_command.status IS 'PENDING, TAKEN (by the master that stands in it), EXECUTED, FAILED or EXPIRED; each is executed at most once.';
COMMENT ON COLUMN job_command.output IS 'What came of it, in words.';
COMMENT ON COLUMN job_command.expires_at IS 'Nobody takes it after this.';
COMMENT ON TABLE job_scaling IS 'Every decision of the autoscaler, with what it was made from.';
COMMENT ON COLUMN job_scaling.inputs IS 'What was measured: what is due, how fast it comes and goes, how long it takes, memory.';
COMMENT ON TABLE job_tenant_switch IS 'How often each worker of a pool went from one tenant''s jobs to another''s, added up with its heartbeats; * stands for the rest.';
COMMENT ON VIEW fleet_overview IS 'Every host with its pools; LOST means that its supervisor''s heartbeat stopped.';
COMMENT ON VIEW command_overview IS 'What supervisors were told; says so when a host does not answer.';
COMMENT ON FUNCTION command_fleet IS 'Tells the supervisor of a host: SELECT command_fleet(''scale'', ''mail-supervisor'', 4).';
