CREATE TABLE share (
    token      text PRIMARY KEY COLLATE "C",
    tenant     text NOT NULL COLLATE "C",
    snap_id    uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,

    -- no cascade: a snap that was ever shared is not deleted
    FOREIGN KEY (tenant, snap_id) REFERENCES snap (tenant, id),
    -- new tokens have 32 hex digits; links of the old service keep their own
    CONSTRAINT token_can_be_in_a_path CHECK (token ~ '^[A-Za-z0-9_-]{16,200}$')
);

CREATE UNIQUE INDEX share_in_force ON share (snap_id) WHERE revoked_at IS NULL;
CREATE INDEX share_of_snap ON share (tenant, snap_id, created_at);

GRANT SELECT, INSERT, UPDATE ON share TO snapapp_tenant;
ALTER TABLE share ENABLE ROW LEVEL SECURITY;
CREATE POLICY its_own ON share USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE share IS 'Public links. A snap has at most one valid link at a time; a link that was revoked or has expired never works again.';
COMMENT ON COLUMN share.token IS 'The secret part of the link.';
COMMENT ON COLUMN share.tenant IS 'The tenant that the row belongs to.';
COMMENT ON COLUMN share.snap_id IS 'The snap (snap.id).';
COMMENT ON COLUMN share.created_at IS 'When the link was created.';
COMMENT ON COLUMN share.expires_at IS 'When the link stops working; null: never.';
COMMENT ON COLUMN share.revoked_at IS 'When the link was revoked; null: it was not.';
