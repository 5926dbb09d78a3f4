-- The first tenant has the token that the old service's developers know; with it prod refuses to start if tokens are
-- required.
INSERT INTO tenant (code, name, token_hash) VALUES ('default', 'Default', sha256('dev-default-token'));
