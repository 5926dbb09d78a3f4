-- With the token that the old service's developers know; prod refuses to start on it where tokens are required.
INSERT INTO tenant (code, name, token_hash) VALUES ('default', 'Default', sha256('dev-default-token'));
