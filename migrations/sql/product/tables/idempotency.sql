CREATE TABLE idempotency (
    tenant     text NOT NULL COLLATE "C",
    key        text NOT NULL COLLATE "C",
    body_hash  bytea NOT NULL,
    snap_id    uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (tenant, key),
    -- checked at commit, because the key is added before its snap, in the same transaction
    FOREIGN KEY (tenant, snap_id) REFERENCES snap (tenant, id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT key_is_short CHECK (length(key) BETWEEN 1 AND 200),
    CONSTRAINT body_is_hashed CHECK (octet_length(body_hash) = 32)
);

CREATE INDEX idempotency_of_snap ON idempotency (tenant, snap_id);
CREATE INDEX idempotency_by_age ON idempotency (tenant, created_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency TO snapapp_tenant;
ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY its_own ON idempotency USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE idempotency IS 'Idempotency keys of the last 24 hours, and the snaps that their requests created.';
COMMENT ON COLUMN idempotency.tenant IS 'The tenant that the row belongs to.';
COMMENT ON COLUMN idempotency.key IS 'The key as the client sent it.';
COMMENT ON COLUMN idempotency.body_hash IS 'SHA-256 of the request: another request with this key is refused.';
COMMENT ON COLUMN idempotency.snap_id IS 'The snap that the request created.';
COMMENT ON COLUMN idempotency.created_at IS 'When the key was first used.';
