-- The second wall; the first is the condition on tenant in every statement. db.scope() acts as snapapp_tenant and says
-- for whom. Nothing said: nothing seen. FORCE holds the owner to it as well, except at the two doors where it is found
-- out who somebody is: a tenant by its token, a receiver by the token of a link.

GRANT SELECT (code, name, status, created_at, token_changed_at) ON tenant TO snapapp_tenant;
GRANT SELECT, INSERT, UPDATE ON operator, template, video, share TO snapapp_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON snap, idempotency, webhook TO snapapp_tenant;
GRANT SELECT, INSERT, DELETE ON subject_attribute, subject_word TO snapapp_tenant;
GRANT SELECT, INSERT ON correction TO snapapp_tenant;

ALTER TABLE tenant ENABLE ROW LEVEL SECURITY;
ALTER TABLE share ENABLE ROW LEVEL SECURITY;
ALTER TABLE operator ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE template ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE video ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE snap ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE subject_attribute ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE subject_word ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE correction ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE webhook ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- A setting that was set once in a session is empty, not null, ever after.
CREATE POLICY its_own ON tenant USING (code = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON share USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON operator USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON template USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON video USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON snap USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON subject_attribute USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON subject_word USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON correction USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON idempotency USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
CREATE POLICY its_own ON webhook USING (tenant = nullif(current_setting('snapapp.tenant', true), ''));
