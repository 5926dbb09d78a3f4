-- One row for each job that a job waits for. Few jobs have such rows; they are deleted with the waiting job. A child
-- has a greater id than its parents, because they exist before it is added, so there are no circles.
CREATE TABLE job_parent (
    job_id        bigint NOT NULL,
    parent_id     bigint NOT NULL,
    must_complete boolean NOT NULL,
    PRIMARY KEY (job_id, parent_id),
    CONSTRAINT parents_are_older CHECK (parent_id < job_id)
);
CREATE INDEX job_parent_children ON job_parent (parent_id, job_id);

COMMENT ON TABLE job_parent IS 'The jobs that a job waits for, or has waited for.';
COMMENT ON COLUMN job_parent.must_complete IS 'True: the job is CANCELLED when this parent is FAILED or CANCELLED. False: it runs anyway.';
