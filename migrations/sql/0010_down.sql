-- The role stays: other databases of the cluster may use it.
DROP TRIGGER snap_waits_with_its_replay ON snap_processing_job;
DROP TRIGGER snap_waits_with_its_job ON snap_processing_job;
DROP TRIGGER snap_ends_with_its_job ON snap_processing_job;
DROP VIEW snap_job;
DROP TABLE webhook, idempotency, correction, share, subject_word, subject_attribute, snap, video, template, operator,
           tenant;
DROP FUNCTION tenant_begins_with_templates, snap_waits_with_its_job, snap_ends_with_its_job;
