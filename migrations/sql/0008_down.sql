DROP VIEW command_overview, fleet_overview;
DROP FUNCTION command_fleet;
DROP TABLE job_tenant_switch, job_scaling, job_command, job_pool, job_master;
ALTER TABLE job_worker_exit DROP COLUMN pool;
ALTER TABLE job_worker DROP COLUMN pool, DROP COLUMN master, DROP COLUMN max_jobs, DROP COLUMN max_seconds,
    DROP COLUMN max_memory_mb;
