CREATE VIEW schedule_overview AS
SELECT its.name, its.spec, its.tz, its.queue, its.missed, its.overlap, its.paused_at, its.paused_reason,
       (SELECT count(*) FROM job_worker WHERE id = ANY (its.declared_by) AND expires_at > now()) AS workers,
       last.slot AS last_slot, last.outcome AS last_outcome, last.why AS last_why,
       fired.slot AS last_fired, fired.job_id AS last_job, job.status AS last_job_status,
       its.settled_until, its.created_at, its.declared_at
  FROM job_schedule AS its
  LEFT JOIN LATERAL (SELECT * FROM job_schedule_slot WHERE schedule = its.name ORDER BY slot DESC LIMIT 1)
       AS last ON true
  LEFT JOIN LATERAL (SELECT * FROM job_schedule_slot WHERE schedule = its.name AND job_id IS NOT NULL
                      ORDER BY slot DESC LIMIT 1) AS fired ON true
  LEFT JOIN snap_processing_job AS job ON job.id = fired.job_id
 ORDER BY its.name;

COMMENT ON VIEW schedule_overview IS 'Every schedule with its last slot and its last job; workers = 0 means that no live worker declares it, so nothing fires.';
