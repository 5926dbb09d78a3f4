CREATE TABLE job_queue (
    name          text PRIMARY KEY COLLATE "C",
    fair          boolean NOT NULL DEFAULT false,
    ages_after    interval CHECK (ages_after > '0'),
    long_wait     interval CHECK (long_wait > '0'),
    paused_at     timestamptz,
    paused_reason text,
    paused_by     text,

    CONSTRAINT names_are_short CHECK (length(name) BETWEEN 1 AND 200 AND length(paused_by) <= 200),  -- as HTTP names queues
    CONSTRAINT pauses_begin_at_a_moment CHECK (paused_at BETWEEN '1970-01-01Z' AND '9900-01-01Z'),  -- as Python reads times
    CONSTRAINT reason_is_short CHECK (length(paused_reason) <= 500)
);

CREATE TRIGGER job_rules_changed AFTER UPDATE OF fair ON job_queue
    FOR EACH ROW EXECUTE FUNCTION job_rules_changed();
CREATE TRIGGER job_rules_begun AFTER INSERT ON job_queue
    FOR EACH ROW WHEN (NEW.fair) EXECUTE FUNCTION job_rules_changed();
CREATE TRIGGER job_rules_ended AFTER DELETE ON job_queue
    FOR EACH ROW WHEN (OLD.fair) EXECUTE FUNCTION job_rules_changed();

COMMENT ON TABLE job_queue IS 'Queues that are paused or shared out fairly by tenant; a queue needs no row here to exist.';
COMMENT ON COLUMN job_queue.fair IS 'True: lanes take turns, and the lane of a job without a concurrency key is its tenant. Waiting jobs follow once the workers have looked through them.';
COMMENT ON COLUMN job_queue.ages_after IS 'Each time a job has been due for this long again, its priority counts one higher; null: never.';
COMMENT ON COLUMN job_queue.long_wait IS 'The doctor and the alerts report a job that is due for longer than this; null: 5 minutes. An interval of years silences the queue.';
COMMENT ON COLUMN job_queue.paused_by IS 'Who paused it: the name that the person gave, or else the role of the session.';
