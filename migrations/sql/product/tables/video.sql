CREATE TABLE video (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant      text NOT NULL COLLATE "C" REFERENCES tenant,
    url         text,
    url_hash    bytea,
    storage_key text,
    file_name   text,
    size_bytes  bigint,
    sha256      bytea,
    probe       jsonb,
    created_by  bigint,
    created_at  timestamptz NOT NULL DEFAULT now(),

    FOREIGN KEY (tenant, created_by) REFERENCES operator (tenant, id),
    CONSTRAINT video_of_tenant UNIQUE (tenant, id),
    CONSTRAINT video_url UNIQUE (tenant, url_hash),
    CONSTRAINT it_has_a_source CHECK (num_nonnulls(url, storage_key) > 0),
    CONSTRAINT an_upload_is_described CHECK (
        storage_key IS NULL OR url IS NOT NULL OR num_nonnulls(size_bytes, sha256) = 2),
    CONSTRAINT texts_are_short CHECK (
        length(url) BETWEEN 1 AND 4096 AND length(storage_key) <= 1000 AND length(file_name) <= 500),
    CONSTRAINT numbers_are_sane CHECK (size_bytes >= 0 AND octet_length(sha256) = 32),
    CONSTRAINT url_is_hashed CHECK ((url IS NULL) = (url_hash IS NULL) AND octet_length(url_hash) = 32),
    CONSTRAINT probe_is_capped CHECK (pg_column_size(probe) <= 1000000)
);

-- The same bytes are stored once for each tenant.
CREATE UNIQUE INDEX video_bytes ON video (tenant, sha256) WHERE storage_key IS NOT NULL AND url IS NULL;
CREATE INDEX video_recent ON video (tenant, created_at, id);

GRANT SELECT, INSERT, UPDATE, DELETE ON video TO snapapp_tenant;
ALTER TABLE video ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY its_own ON video USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE video IS 'A video that snaps are made of, either at a URL or uploaded.';
COMMENT ON COLUMN video.id IS 'The id of the video (videoId in the API).';
COMMENT ON COLUMN video.tenant IS 'The tenant that the row belongs to.';
COMMENT ON COLUMN video.url IS 'The URL of the video as sent; null for an upload.';
COMMENT ON COLUMN video.url_hash IS 'SHA-256 of url; unique within a tenant.';
COMMENT ON COLUMN video.storage_key IS 'The key of the uploaded bytes in the storage; null: the video is fetched from url.';
COMMENT ON COLUMN video.file_name IS 'The name that the uploader gave the file; it is shown, and never used as a path.';
COMMENT ON COLUMN video.size_bytes IS 'The size of the upload in bytes.';
COMMENT ON COLUMN video.sha256 IS 'SHA-256 of the uploaded bytes; the same bytes are stored once.';
COMMENT ON COLUMN video.probe IS 'The properties of the video: format, size, duration, frame rate.';
COMMENT ON COLUMN video.created_by IS 'Who added the video.';
COMMENT ON COLUMN video.created_at IS 'When the video was added.';
