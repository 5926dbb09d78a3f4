-- One branch for each index: with a single condition PostgreSQL would use none of the indexes.
CREATE VIEW job_apart AS
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
UNION ALL
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later'
UNION ALL
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone'
UNION ALL
SELECT * FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after';

COMMENT ON VIEW job_apart IS 'Waiting jobs that only some claims may take: held by a limit or a fair queue, suspects (which run alone), and jobs that wait for other jobs.';
