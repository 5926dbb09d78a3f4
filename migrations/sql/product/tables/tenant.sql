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
-- A setting that was set once in a session is empty, not null, ever after.
CREATE POLICY its_own ON tenant USING (code = nullif(current_setting('snapapp.tenant', true), ''));

COMMENT ON TABLE tenant IS 'A customer (assinatura). Its code is its key everywhere; adding one gives it its templates.';
COMMENT ON COLUMN tenant.code IS 'What X-Assinatura-Codigo says.';
COMMENT ON COLUMN tenant.name IS 'For people.';
COMMENT ON COLUMN tenant.token_hash IS 'SHA-256 of its token, which is kept nowhere; null: it has none.';
COMMENT ON COLUMN tenant.status IS 'ACTIVE, or INACTIVE: then it is as if it did not exist.';
COMMENT ON COLUMN tenant.created_at IS 'When it was added.';
COMMENT ON COLUMN tenant.token_changed_at IS 'When it last got a token.';
