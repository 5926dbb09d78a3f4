CREATE TABLE tenant (
    code             text PRIMARY KEY COLLATE "C",
    name             text NOT NULL,
    token_hash       bytea UNIQUE,
    status           text NOT NULL DEFAULT 'ACTIVE',
    created_at       timestamptz NOT NULL DEFAULT now(),
    token_changed_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT code_can_be_in_a_path CHECK (
        length(code) BETWEEN 1 AND 100 AND code !~ '[[:cntrl:]/\\]' AND code = btrim(code) AND code NOT IN ('.', '..')),
    CONSTRAINT name_is_short CHECK (length(name) BETWEEN 1 AND 200),
    CONSTRAINT token_is_hashed CHECK (octet_length(token_hash) = 32),
    CONSTRAINT status_is_known CHECK (status IN ('ACTIVE', 'INACTIVE'))
);

CREATE TRIGGER tenant_begins_with_templates AFTER INSERT ON tenant
    FOR EACH ROW EXECUTE FUNCTION tenant_begins_with_templates();

GRANT SELECT (code, name, status, created_at, token_changed_at) ON tenant TO snapapp_tenant;
ALTER TABLE tenant ENABLE ROW LEVEL SECURITY;
-- nullif, because a setting that was set for a transaction is empty, not null, in the rest of the session.
CREATE POLICY its_own ON tenant USING (code = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE tenant IS 'A customer (assinatura), identified by its code. A trigger gives a new tenant its templates.';
COMMENT ON COLUMN tenant.code IS 'The code that the header X-Assinatura-Codigo names.';
COMMENT ON COLUMN tenant.name IS 'The name of the tenant for people.';
COMMENT ON COLUMN tenant.token_hash IS 'SHA-256 of its token, which itself is stored nowhere; null: it has no token.';
COMMENT ON COLUMN tenant.status IS 'ACTIVE or INACTIVE; an INACTIVE tenant is treated as unknown.';
COMMENT ON COLUMN tenant.created_at IS 'When it was added.';
COMMENT ON COLUMN tenant.token_changed_at IS 'When it last got a token.';
