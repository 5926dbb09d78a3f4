-- Locks the children that still wait. If a parent did not complete, also all jobs below them, which may be cancelled
-- too.
CREATE FUNCTION job_lock_children(parents bigint[]) RETURNS bigint[] LANGUAGE sql AS $$
    WITH RECURSIVE below AS (
        SELECT its.job_id, coalesce(parent.status, '') <> 'COMPLETED' AS goes_on
          FROM job_parent AS its LEFT JOIN snap_processing_job AS parent ON parent.id = its.parent_id
         WHERE its.parent_id = ANY (parents)
      UNION
        SELECT its.job_id, true FROM below JOIN job_parent AS its ON its.parent_id = below.job_id WHERE goes_on
    ), locked AS MATERIALIZED (
        SELECT id FROM snap_processing_job WHERE id = ANY (ARRAY(SELECT job_id FROM below)) AND gate = 'after'
         ORDER BY id FOR NO KEY UPDATE
    )
    SELECT coalesce(array_agg(id), '{}') FROM locked
$$;

COMMENT ON FUNCTION job_lock_children IS 'Locks the jobs that wait for these, in the order of ids, and returns them.';
