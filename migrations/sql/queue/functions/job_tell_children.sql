-- The caller has locked the children, which wait for jobs that have ended or were revived.
CREATE FUNCTION job_tell_children(children bigint[], ended bigint[], revived bigint[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    gone bigint[];
    child bigint;
BEGIN
    -- Cancels the jobs that cannot run any more, and all below them at once, because a chain may be long. No person
    -- cancelled them, so cancel_requested_at stays empty: by that job_meet_parents knows which it may revive. IS TRUE
    -- makes PostgreSQL hash `waits`: before the table is first analysed it would go through all of it for each row.
    WITH RECURSIVE waits AS MATERIALIZED (
        SELECT id FROM snap_processing_job WHERE id = ANY (children) AND status IN ('PENDING', 'RETRY_WAIT')
    ), lost AS (
        SELECT its.job_id, its.parent_id
          FROM job_parent AS its LEFT JOIN snap_processing_job AS parent ON parent.id = its.parent_id
         WHERE its.parent_id = ANY (ended) AND its.must_complete AND parent.status IS DISTINCT FROM 'COMPLETED'
           AND (its.job_id IN (SELECT id FROM waits)) IS TRUE
      UNION
        SELECT its.job_id, its.parent_id
          FROM lost JOIN job_parent AS its ON its.parent_id = lost.job_id AND its.must_complete
         WHERE (its.job_id IN (SELECT id FROM waits)) IS TRUE
    )
    UPDATE snap_processing_job AS job
       SET status = 'CANCELLED', lease_seq = lease_seq + 1, losses = 0, finished_at = clock_timestamp(),
           last_error = format('its parent, job %s, %s', its.parent_id, coalesce(
               (SELECT 'is ' || CASE WHEN finished_at IS NULL THEN 'CANCELLED' ELSE status END
                  FROM snap_processing_job WHERE id = its.parent_id), 'was deleted'))
      FROM (SELECT job_id, min(parent_id) AS parent_id FROM lost GROUP BY job_id) AS its
     WHERE job.id = its.job_id;

    FOR child IN
        SELECT DISTINCT job_id FROM job_parent WHERE parent_id = ANY (revived) AND job_id = ANY (children) ORDER BY job_id
    LOOP
        PERFORM job_meet_parents(child);
        children := array_remove(children, child);
    END LOOP;

    -- A deleted job may have ended before, and was counted then. IS TRUE: see above.
    gone := ARRAY(SELECT unnest(ended) EXCEPT SELECT id FROM snap_processing_job WHERE id = ANY (ended));
    UPDATE snap_processing_job AS job
       SET waits_for = CASE WHEN its.lacks_one THEN (job_parent_counts(job.id)).open ELSE waits_for - its.ended END
      FROM (SELECT job_id, count(*) AS ended, bool_or(parent_id = ANY (gone)) AS lacks_one
              FROM job_parent WHERE parent_id = ANY (ended) GROUP BY job_id) AS its
     WHERE job.id = its.job_id AND (job.id IN (SELECT unnest(children))) IS TRUE AND job.status IN ('PENDING', 'RETRY_WAIT');
    PERFORM job_admit(ARRAY(SELECT id FROM snap_processing_job
                             WHERE id = ANY (children) AND status IN ('PENDING', 'RETRY_WAIT') AND waits_for = 0));
END $$;

COMMENT ON FUNCTION job_tell_children IS 'Releases, cancels or revives children of jobs that have ended or were revived.';
