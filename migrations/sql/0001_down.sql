DROP VIEW worker_overview, queue_throughput, queue_dead_letters, queue_stuck, queue_overview;
DROP TABLE snap_processing_job, job_log, job_worker, job_worker_exit, job_queue, job_limit;
DROP FUNCTION job_next_due, resume_queue, pause_queue, cancel_job, replay_job, retry_job, enqueue_jobs, enqueue_job,
              job_after_insert, job_before_insert, job_spec_hash;
