-- Broken invariants that can be seen in the rows, and that CHECKs and unique indexes cannot express. The ids are those
-- of docs/doctor.md. Only the newest 20,000 jobs and all RUNNING ones are looked at, so the cost does not grow with the
-- table.
CREATE VIEW queue_invariants AS
WITH looked_at AS MATERIALIZED (
    SELECT max(id) - 19999 AS lowest, max(id) AS highest FROM snap_processing_job
), job AS MATERIALIZED (
    -- By an array of ids: for a range of ids or a LIMIT, PostgreSQL may read the whole table if it was never analyzed.
    -- Of the wide columns only whether they are null is asked, so their TOAST pages are not read.
    SELECT id, kind, status, attempt_count, max_attempts, lease_seq, losses, cancel_requested_at, next_retry_at,
           started_at, finished_at, last_error IS NULL AS has_no_error, result IS NOT NULL AS has_result
      FROM snap_processing_job
     WHERE id = ANY (ARRAY(SELECT generate_series(greatest(lowest, 1), highest) FROM looked_at))
  UNION ALL
    SELECT id, kind, status, attempt_count, max_attempts, lease_seq, losses, cancel_requested_at, next_retry_at,
           started_at, finished_at, last_error IS NULL, result IS NOT NULL
      FROM snap_processing_job WHERE status = 'RUNNING' AND id < (SELECT lowest FROM looked_at)
), slot AS MATERIALIZED (
    SELECT newest.*, its.settled_until
      FROM job_schedule AS its
     CROSS JOIN LATERAL (SELECT * FROM job_schedule_slot WHERE schedule = its.name ORDER BY slot DESC LIMIT 200) AS newest
), logged AS MATERIALIZED (
    (SELECT job_id FROM job_log ORDER BY job_id, id LIMIT 2000)
  UNION
    (SELECT job_id FROM job_log ORDER BY job_id DESC, id DESC LIMIT 2000)
)
SELECT 'I3' AS invariant, id AS job_id, 'it waits though somebody cancelled it' AS what
  FROM job WHERE status IN ('PENDING', 'RETRY_WAIT') AND cancel_requested_at IS NOT NULL
UNION ALL
SELECT 'I3', id, 'it is ' || status || ' and still counts losses'
  FROM job WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND losses > 0
UNION ALL
SELECT 'I3', job.id, format('it waits for %s parents, of which %s are not over', job.waits_for, told.open)
  FROM (SELECT id, waits_for FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after' LIMIT 1000) AS job
 CROSS JOIN LATERAL job_parent_counts(job.id) AS told
 WHERE job.waits_for IS DISTINCT FROM told.open OR told.open = 0
UNION ALL
SELECT 'I3', id, format('its gate is %s, and there is no limit and no fair queue that lets it in', gate)
  FROM (SELECT id, gate FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' AND NOT job_has_rules() LIMIT 1000) AS job
UNION ALL
SELECT 'I3', id, format('its gate is %s, and there is no limit and no fair queue that lets it in', gate)
  FROM (SELECT id, gate FROM snap_processing_job
         WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later' AND NOT job_has_rules() LIMIT 1000) AS job
UNION ALL
SELECT 'I3', id, 'it ended before it began'
  FROM job WHERE finished_at < started_at - interval '1 second'
UNION ALL
SELECT 'I4', id, format('it runs its attempt %s under lease %s: a claim did not raise lease_seq', attempt_count, lease_seq)
  FROM job WHERE status = 'RUNNING' AND lease_seq < attempt_count
UNION ALL
-- a row that was never claimed at all comes from an import
SELECT 'I4', id, format('it is COMPLETED after %s attempts with lease_seq %s: nobody held it', attempt_count, lease_seq)
  FROM job WHERE status = 'COMPLETED' AND lease_seq > 0 AND (lease_seq < 2 OR attempt_count = 0)
UNION ALL
-- the claim that finds the attempts used up counts one more until the job is FAILED
SELECT 'I7', id, format('it is %s with %s of %s attempts', status, attempt_count, max_attempts)
  FROM job WHERE attempt_count > max_attempts + (status = 'RUNNING')::integer
UNION ALL
SELECT 'I7', id, 'it is a dead letter without a reason'
  FROM job WHERE status = 'FAILED' AND has_no_error
UNION ALL
SELECT 'I8', id, 'it began before it was due'
  FROM job WHERE status = 'RUNNING' AND started_at < next_retry_at - interval '1 second'
UNION ALL
SELECT 'I9', id, 'it is ' || status || ' and has a result'
  FROM job WHERE status <> 'COMPLETED' AND has_result
UNION ALL
SELECT 'I13', job_id, format('it is the job of %s slots, of %s', count(*), string_agg(DISTINCT schedule, ', '))
  FROM slot WHERE job_id IS NOT NULL GROUP BY job_id HAVING count(*) > 1
UNION ALL
SELECT 'I13', its.id, format('the slot %s of %s has a job of the kind %s', slot.slot, slot.schedule, its.kind)
  FROM slot CROSS JOIN LATERAL (SELECT id, kind FROM snap_processing_job WHERE id = slot.job_id LIMIT 1) AS its
 WHERE its.kind <> slot.schedule
UNION ALL
SELECT 'I13', job_id, format('the slot %s of %s was fired ahead of settled_until', slot, schedule)
  FROM slot WHERE worker IS NOT NULL AND slot > settled_until
UNION ALL
SELECT 'I10', NULL, format('the workers %s and %s say they are process %s of one machine', old.id, young.id, old.pid)
  FROM job_worker AS old JOIN job_worker AS young USING (machine, pid)
 WHERE old.pid_started < young.pid_started AND old.beat_at > young.started_at
UNION ALL
-- one by one: with a join PostgreSQL may read the whole table if it was never analyzed
SELECT 'I10', job_id, 'there are lines in job_log of a job that is not there'
  FROM logged LEFT JOIN LATERAL (SELECT id FROM snap_processing_job WHERE id = logged.job_id LIMIT 1) AS its ON true
 WHERE its.id IS NULL
UNION ALL
SELECT 'I3', NULL, format('the unique index %s is not valid: it guards nothing', indexrelid::regclass)
  FROM pg_index WHERE indrelid = 'snap_processing_job'::regclass AND indisunique AND NOT indisvalid
UNION ALL
SELECT 'I3', NULL, format('the constraint %s was never validated', conname)
  FROM pg_constraint WHERE conrelid = 'snap_processing_job'::regclass AND NOT convalidated
UNION ALL
SELECT 'I3', NULL, format('the trigger %s is disabled', tgname)
  FROM pg_trigger WHERE tgrelid = 'snap_processing_job'::regclass AND tgenabled = 'D';

COMMENT ON VIEW queue_invariants IS 'Broken invariants. Always empty, unless the queue has a bug or rows were changed by hand. snapapp doctor reads it too.';
