-- Looks through one page of jobs after the rules have changed. True: call again.
CREATE FUNCTION job_relabel(at_most integer DEFAULT 5000) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    change job_rule_change;
    ids bigint[];
BEGIN
    SELECT * INTO change FROM job_rule_change FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;  -- nothing to do, or another worker is doing it
    END IF;
    -- We see the change, and so does every transaction that gets its id after us. An id that nobody has here yet came
    -- with a dump of another server: it may take years until this one gets there.
    IF change.looked_to < 0 OR change.changed_by >= pg_current_xact_id()::text::bigint THEN
        change.changed_by := pg_current_xact_id()::text::bigint - 1;
    END IF;
    IF change.looked_to <= 0 THEN
        change.is_last := pg_snapshot_xmin(pg_current_snapshot())::text::bigint > change.changed_by;
    END IF;
    ids := ARRAY(SELECT id FROM snap_processing_job WHERE id > change.looked_to ORDER BY id LIMIT at_most);
    IF NOT job_label(ids) THEN  -- somebody has locked some of them: another pass labels them
        change.is_last := false;
    END IF;
    IF cardinality(ids) = at_most THEN
        UPDATE job_rule_change SET looked_to = ids[at_most], is_last = change.is_last, changed_by = change.changed_by;
        RETURN true;
    ELSIF change.is_last THEN
        DELETE FROM job_rule_change;
    ELSE
        UPDATE job_rule_change SET looked_to = 0, changed_by = change.changed_by;  -- again: for older transactions, and locked rows
    END IF;
    RETURN false;
END $$;

COMMENT ON FUNCTION job_relabel IS 'Labels a page of jobs anew after limits or fair queues have changed; true while there is more.';
