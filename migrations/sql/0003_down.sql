DROP FUNCTION explain_job, explain_waiting_job, explain_place_of_job, job_span;
