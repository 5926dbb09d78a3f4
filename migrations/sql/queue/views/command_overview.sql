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

COMMENT ON VIEW command_overview IS 'The commands to supervisors; the output says if a host does not answer.';
