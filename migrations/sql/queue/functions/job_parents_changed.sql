-- Runs at commit, after the hook of a job: so a child is locked during the commit only, not while a hook runs. The
-- first call handles all parents of the transaction, and locks the children in the order of their ids, so that
-- transactions cannot deadlock. A child whose row refuses to be written (a trigger, a CHECK added later) goes on waiting,
-- and queue_invariants names it: it must not keep its parent and the other children from going on.
CREATE FUNCTION job_parents_changed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    noted bigint[];
    revived bigint[];
    ended bigint[];
    children bigint[];
BEGIN
    LOOP
        noted := string_to_array(nullif(current_setting('snapapp.parents', true), ''), ',')::bigint[];
        EXIT WHEN noted IS NULL;
        noted := noted || string_to_array(nullif(current_setting('snapapp.more_parents', true), ''), ',')::bigint[];
        PERFORM set_config('snapapp.parents', '', true), set_config('snapapp.more_parents', '', true);
        revived := ARRAY(SELECT DISTINCT -its FROM unnest(noted) AS its WHERE its < 0);
        ended := ARRAY(SELECT DISTINCT its FROM unnest(noted) AS its WHERE its > 0 EXCEPT SELECT unnest(revived));
        IF children IS NULL THEN
            children := job_lock_children(ended || revived);
        ELSE  -- jobs that the previous round ended or revived; their children are locked already
            children := ARRAY(
                SELECT id FROM snap_processing_job
                 WHERE id = ANY (ARRAY(SELECT job_id FROM job_parent WHERE parent_id = ANY (noted || revived))) AND gate = 'after');
        END IF;

        BEGIN
            PERFORM job_tell_children(children, ended, revived);
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE ~ '^(40|53|55P03)' THEN  -- a deadlock, a full server, a lock: not the fault of a row
                RAISE;
            END IF;
            PERFORM job_tell_children_one_by_one(children, ended, revived);
        END;
    END LOOP;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION job_parents_changed IS 'At commit: releases, cancels or revives the children of the jobs that have ended or were revived.';
