"""Routes for operators: jobs, queues, workers, fleet, schedules, doctor, metrics, health."""
