CREATE TABLE snap (
    id                     uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant                 text NOT NULL COLLATE "C" REFERENCES tenant,
    video_id               uuid NOT NULL,
    operator_id            bigint NOT NULL,
    template_id            bigint NOT NULL,
    nickname               text NOT NULL,
    nickname_lower         text NOT NULL GENERATED ALWAYS AS (lower(nickname)) STORED,
    email                  text NOT NULL,
    kind                   text NOT NULL,
    is_draft               boolean NOT NULL DEFAULT false,
    filmed_at              timestamptz,
    start_seconds          double precision,
    start_frame            bigint,
    resolved_start_seconds double precision,
    duration_seconds       double precision NOT NULL,
    clip_seconds           double precision NOT NULL,
    fps                    integer NOT NULL,
    max_width              integer NOT NULL,
    format                 text NOT NULL,
    quality                integer,
    overlay                jsonb,
    subject_id             text NOT NULL,
    subject                jsonb NOT NULL,
    ended                  text,
    error                  text,
    cancelled_by           text,
    probe                  jsonb,
    clip                   jsonb,
    frames                 jsonb,
    frame_count            integer NOT NULL DEFAULT 0,
    extras                 jsonb NOT NULL DEFAULT '{}',
    media_prefix           text,
    media_bytes            bigint NOT NULL DEFAULT 0,
    request_id             text,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    processed_at           timestamptz,
    hidden_at              timestamptz,

    FOREIGN KEY (tenant, video_id) REFERENCES video (tenant, id),
    FOREIGN KEY (tenant, operator_id) REFERENCES operator (tenant, id),
    FOREIGN KEY (tenant, template_id) REFERENCES template (tenant, id),
    CONSTRAINT snap_of_tenant UNIQUE (tenant, id),
    CONSTRAINT kind_is_known CHECK (kind IN ('INSTANT', 'INTERVAL')),
    CONSTRAINT format_is_known CHECK (format IN ('jpg', 'png') AND (format = 'jpg' OR quality IS NULL)),
    CONSTRAINT it_starts_somewhere CHECK (num_nonnulls(start_seconds, start_frame) > 0),
    -- PostgreSQL takes NaN for greater than every number, so these limits refuse it too
    CONSTRAINT moments_are_sane CHECK (
        start_seconds BETWEEN 0 AND 1e7 AND start_frame BETWEEN 0 AND 1e10 AND resolved_start_seconds BETWEEN 0 AND 1e7
        AND duration_seconds BETWEEN 0 AND 60 AND clip_seconds BETWEEN 0 AND 60),
    CONSTRAINT picture_is_sane CHECK (
        fps BETWEEN 1 AND 60 AND max_width BETWEEN 16 AND 8192 AND quality BETWEEN 1 AND 31 AND frame_count >= 0 AND media_bytes >= 0),
    CONSTRAINT texts_are_short CHECK (
        length(nickname) BETWEEN 1 AND 120 AND length(email) BETWEEN 1 AND 320 AND length(subject_id) BETWEEN 1 AND 200
        AND length(error) <= 4000 AND length(cancelled_by) <= 120 AND length(media_prefix) <= 1000
        AND length(request_id) <= 200),
    CONSTRAINT values_are_capped CHECK (
        pg_column_size(overlay) <= 100000 AND pg_column_size(subject) <= 2000000 AND pg_column_size(probe) <= 1000000
        AND pg_column_size(clip) <= 100000 AND pg_column_size(frames) <= 2000000 AND pg_column_size(extras) <= 2000000),
    CONSTRAINT ended_is_known CHECK (ended IN ('COMPLETED', 'FAILED', 'CANCELLED')),
    CONSTRAINT ended_means_processed CHECK ((ended IS NULL) = (processed_at IS NULL)),
    CONSTRAINT completed_means_evidence CHECK (ended IS DISTINCT FROM 'COMPLETED' OR (frames IS NOT NULL AND error IS NULL)),
    CONSTRAINT failed_means_a_reason CHECK (ended IN ('FAILED', 'CANCELLED') IS NOT TRUE OR error IS NOT NULL)
);

-- One index for each list, read forwards and backwards in its order. Under row level security only leakproof operators
-- may use an index: =, < and > on plain columns are, lower(…) = …, LIKE and @@ are not. Hence the columns that hold the
-- values to search for.
CREATE INDEX snap_of_video ON snap (tenant, video_id, resolved_start_seconds, id) WHERE hidden_at IS NULL;
CREATE INDEX snap_of_subject ON snap (tenant, subject_id, created_at, id) WHERE hidden_at IS NULL;
CREATE INDEX snap_of_subject_as_filmed ON snap (tenant, subject_id, filmed_at, id) WHERE hidden_at IS NULL;
CREATE INDEX snap_of_nickname ON snap (tenant, nickname_lower, created_at, id) WHERE hidden_at IS NULL;
CREATE INDEX snap_of_nickname_by_video ON snap (tenant, nickname_lower, video_id, created_at, id)
    WHERE hidden_at IS NULL;
CREATE INDEX snap_recent ON snap (tenant, created_at, id) WHERE hidden_at IS NULL;
CREATE INDEX snap_pending ON snap (tenant, created_at, id) WHERE hidden_at IS NULL AND ended IS NULL;
CREATE INDEX snap_failed ON snap (tenant, created_at, id) WHERE hidden_at IS NULL AND ended IN ('FAILED', 'CANCELLED');

GRANT SELECT, INSERT, UPDATE, DELETE ON snap TO snapapp_tenant;
ALTER TABLE snap ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY its_own ON snap USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE snap IS 'A marked moment of a video about a subject, and the evidence made of it. The view snap_job has the job that processes it.';
COMMENT ON COLUMN snap.id IS 'The id of the snap (snapId in the API).';
COMMENT ON COLUMN snap.tenant IS 'The tenant that the row belongs to.';
COMMENT ON COLUMN snap.video_id IS 'The video that the moment is in (video.id).';
COMMENT ON COLUMN snap.operator_id IS 'The operator who marked it.';
COMMENT ON COLUMN snap.template_id IS 'The template that applied to its subject.';
COMMENT ON COLUMN snap.nickname IS 'The nickname that the operator had at that time.';
COMMENT ON COLUMN snap.nickname_lower IS 'nickname in lower case, for lists.';
COMMENT ON COLUMN snap.email IS 'The e-mail that the operator had at that time; never shown in public.';
COMMENT ON COLUMN snap.kind IS 'INSTANT (up to 1 s) or INTERVAL.';
COMMENT ON COLUMN snap.is_draft IS 'True: the moment is marked, but not described yet.';
COMMENT ON COLUMN snap.filmed_at IS 'When it was filmed, as the operator says.';
COMMENT ON COLUMN snap.start_seconds IS 'The moment as asked for, in seconds.';
COMMENT ON COLUMN snap.start_frame IS 'The moment as asked for, as a frame; wins over start_seconds.';
COMMENT ON COLUMN snap.resolved_start_seconds IS 'The moment actually used.';
COMMENT ON COLUMN snap.duration_seconds IS 'How many seconds become frames.';
COMMENT ON COLUMN snap.clip_seconds IS 'How many seconds become the clip.';
COMMENT ON COLUMN snap.fps IS 'Frames a second.';
COMMENT ON COLUMN snap.max_width IS 'The widest that a frame may be.';
COMMENT ON COLUMN snap.format IS 'jpg or png.';
COMMENT ON COLUMN snap.quality IS '2 best, 10 smallest; null for png.';
COMMENT ON COLUMN snap.overlay IS 'What is drawn on the frames, as sent.';
COMMENT ON COLUMN snap.subject_id IS 'The id of the subject as sent; if none was sent, the id of the snap.';
COMMENT ON COLUMN snap.subject IS 'The subject {"id", "attributes": […]} as sent, or as last corrected.';
COMMENT ON COLUMN snap.ended IS 'COMPLETED, FAILED or CANCELLED; null: it has not ended, see its job in snap_job.';
COMMENT ON COLUMN snap.error IS 'Why it ended without evidence.';
COMMENT ON COLUMN snap.cancelled_by IS 'Who cancelled it.';
COMMENT ON COLUMN snap.probe IS 'The properties of the video: format, size, duration, frame rate.';
COMMENT ON COLUMN snap.clip IS 'The clip that was published.';
COMMENT ON COLUMN snap.frames IS 'The frames that were published, in order.';
COMMENT ON COLUMN snap.frame_count IS 'The number of frames.';
COMMENT ON COLUMN snap.extras IS 'The other things that were published: poster, thumbnail, flags, hashes, the settings used.';
COMMENT ON COLUMN snap.media_prefix IS 'The prefix of its files in the storage; each attempt has a prefix of its own.';
COMMENT ON COLUMN snap.media_bytes IS 'How large these files are together.';
COMMENT ON COLUMN snap.request_id IS 'The request that made it.';
COMMENT ON COLUMN snap.created_at IS 'When it was marked.';
COMMENT ON COLUMN snap.updated_at IS 'When the row was last changed.';
COMMENT ON COLUMN snap.processed_at IS 'When it ended.';
COMMENT ON COLUMN snap.hidden_at IS 'When it was hidden from its tenant; its public links still work. Null: it is not hidden.';
COMMENT ON POLICY its_own ON snap IS 'Only rows of the tenant in the setting snapapp.tenant; no rows if that is not set. Every table with rows of tenants has this policy.';
