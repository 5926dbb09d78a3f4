-- Says why a job is not running, and when it will run. Every sentence follows from rows that people can read too.
CREATE FUNCTION explain_job(job_id bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    job snap_processing_job;
    holder record;
    said text[] := '{}';
BEGIN
    SELECT * INTO job FROM snap_processing_job WHERE id = job_id;
    IF NOT FOUND THEN
        RETURN format('There is no job %s.', job_id);
    END IF;
    IF job.status IN ('PENDING', 'RETRY_WAIT') THEN
        RETURN (SELECT string_agg(line, chr(10)) FROM explain_waiting_job(job) AS line);
    ELSIF job.status = 'RUNNING' THEN
        SELECT name, host, pid, note INTO holder FROM job_worker WHERE id = job.claimed_by;
        said := said || format('It runs, attempt %s of %s, %s, on worker %s.', job.attempt_count, job.max_attempts,
            coalesce('since ' || job_span(clock - job.started_at), 'claimed but not reported as begun yet'),
            CASE WHEN holder.name IS NULL THEN job.claimed_by || ', which is not on the roster'
                 ELSE format('%s (%s, pid %s)', holder.name, holder.host, holder.pid) END);
        IF job.lock_expires_at > clock THEN
            said := said || format('Last heartbeat %s ago; its lease ends in %s unless another comes.',
                job_span(clock - job.locked_at), job_span(job.lock_expires_at - clock));
        ELSE
            said := said || format('Last heartbeat %s ago; its lease ended %s ago, so it waits to be recovered%s.',
                job_span(clock - job.locked_at), job_span(clock - job.lock_expires_at),
                CASE WHEN EXISTS (SELECT FROM job_worker WHERE expires_at > clock)
                     THEN ', which a worker does with its next sweep' ELSE '; but no worker is alive to do so' END);
        END IF;
        IF holder.note ~ format('ignore their deadline: [^;]* %s[,)]', job_id) THEN
            said := said || 'Its thread ignores its deadline: the job, or its hook, waits for something without a time limit. '
                'It ends with its worker, whose log has the stack.'::text;
        END IF;
        IF job.memory_mb IS NOT NULL THEN
            said := said || format('It ran short of memory, so it may take %s MB, and began with nothing beside it.', job.memory_mb);
        ELSIF job.losses >= 2 THEN
            said := said || format('It ran when its worker died, %s times in a row, so it began with nothing beside it.', job.losses);
        END IF;
        IF job.cancel_requested_at IS NOT NULL THEN
            said := said || format('Somebody asked it to stop %s ago; a completion that arrives first wins.',
                job_span(clock - job.cancel_requested_at));
        END IF;
    ELSE
        said := said || format('It is %s since %s (%s ago), after %s of %s attempts.', job.status,
            to_char(job.finished_at, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'), job_span(clock - job.finished_at),
            job.attempt_count, job.max_attempts);
        IF job.started_at IS NOT NULL THEN
            said := said || format('Its last attempt ran for %s.', job_span(job.finished_at - job.started_at));
        END IF;
        IF job.status = 'CANCELLED' AND job.cancel_requested_at IS NOT NULL THEN
            said := said || format('Somebody cancelled it %s ago.', job_span(clock - job.cancel_requested_at));
        END IF;
        IF job.status <> 'COMPLETED' AND job.last_error IS NOT NULL THEN
            said := said || format('The last error: %s', left(split_part(job.last_error, chr(10), 1), 300));
        END IF;
        said := said || ARRAY(SELECT explain_parents_of_job(job));
        IF job.status <> 'COMPLETED' THEN
            said := said || format('SELECT retry_job(%s), or snapapp jobs retry %s, runs it again, counting from zero.', job_id, job_id);
        END IF;
    END IF;
    RETURN array_to_string(said, chr(10));
END $$;

COMMENT ON FUNCTION explain_job IS 'Why a job is where it is, and what comes next: SELECT explain_job(42).';
