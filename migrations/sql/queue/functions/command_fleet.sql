-- Every command to a supervisor is added here. The host may be left out if there is only one.
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

COMMENT ON FUNCTION command_fleet IS 'Sends a command to the supervisor of a host: SELECT command_fleet(''scale'', ''mail-supervisor'', 4).';
