-- The first waiting job of the next head (queue, kind, priority) after one and before another. In five pieces, each
-- bounded by single columns: before version 18 PostgreSQL ends a scan at a bound on several columns only where the first
-- of them differs, and would walk through all dead entries of the other head (tried: 100,000 of them, 2.6 ms).
-- repeat() makes 2,504 bytes: more than a name may have, so every kind sorts before it.
CREATE FUNCTION job_next_head(from_queue text, from_kind text, from_priority integer,
                              until_queue text, until_kind text, until_priority integer)
    RETURNS TABLE (queue text, kind text, priority integer, due timestamptz)
    LANGUAGE sql STABLE AS $$
    (SELECT job.queue, job.kind, job.priority, job.next_retry_at FROM snap_processing_job AS job
      WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
        AND job.queue = from_queue AND job.kind = from_kind AND job.priority > from_priority
        AND job.priority < CASE WHEN from_queue = until_queue AND from_kind = until_kind THEN until_priority ELSE 1001 END
      ORDER BY job.priority, job.next_retry_at LIMIT 1)
  UNION ALL
    (SELECT job.queue, job.kind, job.priority, job.next_retry_at FROM snap_processing_job AS job
      WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
        AND job.queue = from_queue AND job.kind > from_kind
        AND job.kind < CASE WHEN from_queue = until_queue THEN until_kind ELSE repeat(chr(1114111), 626) END
      ORDER BY job.kind, job.priority, job.next_retry_at LIMIT 1)
  UNION ALL
    (SELECT job.queue, job.kind, job.priority, job.next_retry_at FROM snap_processing_job AS job
      WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
        AND job.queue > from_queue AND job.queue < until_queue
      ORDER BY job.queue, job.kind, job.priority, job.next_retry_at LIMIT 1)
  UNION ALL
    (SELECT job.queue, job.kind, job.priority, job.next_retry_at FROM snap_processing_job AS job
      WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
        AND job.queue = until_queue AND job.kind < until_kind AND from_queue <> until_queue
      ORDER BY job.kind, job.priority, job.next_retry_at LIMIT 1)
  UNION ALL
    (SELECT job.queue, job.kind, job.priority, job.next_retry_at FROM snap_processing_job AS job
      WHERE job.status IN ('PENDING', 'RETRY_WAIT') AND job.gate = 'open'
        AND job.queue = until_queue AND job.kind = until_kind AND job.priority < until_priority
        AND (from_queue, from_kind) <> (until_queue, until_kind)
      ORDER BY job.priority, job.next_retry_at LIMIT 1)
    LIMIT 1
$$;

COMMENT ON FUNCTION job_next_head IS 'The next queue, kind and priority with a waiting job, between two of them; part of the claim.';
