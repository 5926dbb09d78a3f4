CREATE FUNCTION job_parent_counts(
    child bigint, OUT expected integer, OUT succeeded integer, OUT failed integer, OUT open integer
) LANGUAGE sql STABLE AS $$
    SELECT count(*)::integer, count(*) FILTER (WHERE parent.status = 'COMPLETED')::integer,
           count(*) FILTER (WHERE parent.status IN ('FAILED', 'CANCELLED'))::integer,
           count(*) FILTER (WHERE parent.finished_at IS NULL AND parent.id IS NOT NULL)::integer
      FROM job_parent AS its LEFT JOIN snap_processing_job AS parent ON parent.id = its.parent_id
     WHERE its.job_id = child
$$;

COMMENT ON FUNCTION job_parent_counts IS 'Counts the jobs that a job waits for by how they ended: SELECT * FROM job_parent_counts(42). Pruned jobs count as expected only.';
