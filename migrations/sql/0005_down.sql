DROP VIEW queue_invariants;
