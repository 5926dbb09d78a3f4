"""Routes for operators: jobs, queues, workers, fleet, schedules, doctor. Metrics and health are in `actuator`."""
