DROP VIEW schedule_overview;
DROP FUNCTION run_schedule, enqueue_scheduled_job, resume_schedule, pause_schedule;
DROP TABLE job_schedule_slot, job_schedule;
