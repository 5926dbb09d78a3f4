-- Only the newest 200; job_parent_counts(id) counts for any job.
CREATE VIEW workflow_overview AS
SELECT job.id AS job_id, job.kind, CASE
           WHEN job.status = 'COMPLETED' THEN 'SUCCESSFUL'
           WHEN job.status IN ('FAILED', 'CANCELLED') THEN 'FAILED'
           WHEN job.gate = 'after' THEN 'RUNNING'
           ELSE 'WAITING_CALLBACK' END AS state,
       told.expected, told.succeeded, told.failed, told.open, job.created_at, job.finished_at, job.last_error
  FROM (SELECT DISTINCT job_id FROM job_parent ORDER BY job_id DESC LIMIT 200) AS newest
  JOIN snap_processing_job AS job ON job.id = newest.job_id
 CROSS JOIN LATERAL job_parent_counts(job.id) AS told
 ORDER BY job.id DESC;

COMMENT ON VIEW workflow_overview IS 'The newest jobs that wait or have waited for others, with the counts of those. RUNNING: the others have not all ended; WAITING_CALLBACK: they have, and the job itself has not.';
