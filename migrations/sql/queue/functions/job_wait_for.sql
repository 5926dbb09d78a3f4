-- Makes a new job wait for others. The parents are locked, so that each of them either has ended before and is seen
-- here, or ends later and sees the child: its end reads has_children.
CREATE FUNCTION job_wait_for(new_id bigint, parents bigint[], must_complete boolean) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    parent bigint;
BEGIN
    PERFORM FROM snap_processing_job WHERE id = ANY (parents) ORDER BY id FOR NO KEY UPDATE;
    parent := (SELECT min(its) FROM unnest(parents) AS its  -- refuses the new id itself, if a caller guessed it
                WHERE its >= new_id OR NOT EXISTS (SELECT FROM snap_processing_job WHERE id = its));
    IF parent IS NOT NULL OR array_position(parents, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'there is no job % to wait for', parent USING ERRCODE = 'P0002';
    END IF;
    UPDATE snap_processing_job SET has_children = true WHERE id = ANY (parents) AND NOT has_children;
    INSERT INTO job_parent SELECT DISTINCT new_id, its, must_complete FROM unnest(parents) AS its;
    PERFORM job_meet_parents(new_id);
END $$;

COMMENT ON FUNCTION job_wait_for IS 'Makes a new job wait for its parents. People call enqueue_job(kind, after => …).';
