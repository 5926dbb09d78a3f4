-- One branch for each index: a condition on all of them would find none of them.
CREATE VIEW job_apart AS
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
UNION ALL
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later'
UNION ALL
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone'
UNION ALL
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after';

COMMENT ON VIEW job_apart IS 'Waiting jobs that not any claim may take: held by a limit or a fair queue, suspects, which run alone, or those that wait for other jobs.';
