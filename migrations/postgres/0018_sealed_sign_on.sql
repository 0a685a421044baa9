-- Sign-ons that somebody has come back from, kept until they would have expired: each is finished once. What is under way is
-- sealed in the browser's cookie. The table sso_flows is for nodes of before, and is dropped when they are gone.
CREATE TABLE sso_used_states (
    tenant_id TEXT COLLATE "C" NOT NULL,
    state_hash BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, state_hash)
);
CREATE INDEX sso_used_states_by_expiry ON sso_used_states (expires_at);
ALTER TABLE sso_used_states ENABLE ROW LEVEL SECURITY;
ALTER TABLE sso_used_states FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON sso_used_states USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');

-- The ID token of a session whose user is led to the provider to sign out there too; sealed, and gone with the session.
ALTER TABLE sessions ADD COLUMN id_token BYTEA;
