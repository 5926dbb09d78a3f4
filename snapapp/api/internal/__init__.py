"""Routes for operators: jobs, queues, workers, fleet, schedules, doctor; `actuator` has metrics and health."""
