-- Tenants, people, credentials, the audit trail and what the kernel itself needs.
-- Times are milliseconds since 1970; JSON is text; every record of a tenant starts with tenant_id.
-- Text is compared byte by byte, as on SQLite, whatever the database's locale.

CREATE TABLE tenants (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    slug TEXT COLLATE "C" NOT NULL UNIQUE,
    name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- One row per tenant: every write of the tenant's records moves it, so that times and sequences never go back.
CREATE TABLE tenant_clocks (
    tenant_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES tenants (id),
    last_at BIGINT NOT NULL,
    sequence BIGINT NOT NULL
);

CREATE TABLE users (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    email TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    platform_operator BOOLEAN NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, email)
);

-- Only a hash of the cookie's token is kept.
CREATE TABLE sessions (
    token_hash BYTEA NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    user_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id)
);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_use ON sessions (last_seen_at);

CREATE TABLE signin_links (
    token_hash BYTEA NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id)
);
CREATE INDEX signin_links_by_expiry ON signin_links (expires_at);

CREATE TABLE api_keys (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    scopes TEXT COLLATE "C" NOT NULL,
    allowed_cidrs TEXT COLLATE "C" NOT NULL,
    prefix TEXT COLLATE "C" NOT NULL,
    last_four TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT,
    -- Who made it: a key or a person, never both.
    maker_key_id TEXT COLLATE "C",
    maker_user_id TEXT COLLATE "C",
    created_by_type TEXT COLLATE "C" NOT NULL,
    created_by_id TEXT COLLATE "C",
    created_by_name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX api_keys_by_creation ON api_keys (tenant_id, created_at, id);
-- Revoked keys stay for ever; what is asked often looks only at the others.
CREATE INDEX api_keys_live ON api_keys (tenant_id, created_at, id) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_end ON api_keys (tenant_id, expires_at) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_maker ON api_keys (tenant_id, maker_key_id) WHERE revoked_at IS NULL;

-- One row per plaintext that works: a rotated key has two until its overlap ends.
CREATE TABLE api_key_secrets (
    public_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    secret_hash BYTEA NOT NULL,
    valid_until BIGINT,
    FOREIGN KEY (tenant_id, key_id) REFERENCES api_keys (tenant_id, id)
);
CREATE INDEX api_key_secrets_by_key ON api_key_secrets (tenant_id, key_id);
CREATE INDEX api_key_secrets_by_end ON api_key_secrets (valid_until);

-- When a key was last seen. Apart from the keys, so that noting it never waits for a change of them.
CREATE TABLE api_key_uses (
    tenant_id TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    last_used_at BIGINT NOT NULL,
    last_used_ip TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, key_id)
);

-- Answers kept for a repeated Idempotency-Key. The body is sealed, since it may hold a secret.
CREATE TABLE idempotency_records (
    tenant_id TEXT COLLATE "C" NOT NULL,
    actor_id TEXT COLLATE "C" NOT NULL,
    route TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    body_hash BYTEA NOT NULL,
    status BIGINT NOT NULL,
    headers TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, actor_id, route, idempotency_key)
);
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);

CREATE TABLE audit_entries (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    actor_type TEXT COLLATE "C" NOT NULL,
    actor_id TEXT COLLATE "C",
    actor_name TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    target_type TEXT COLLATE "C" NOT NULL,
    target_id TEXT COLLATE "C",
    address TEXT COLLATE "C",
    credential_type TEXT COLLATE "C",
    credential_id TEXT COLLATE "C",
    request_id TEXT COLLATE "C",
    changes TEXT COLLATE "C",
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX audit_entries_by_time ON audit_entries (tenant_id, at, id);
CREATE INDEX audit_entries_by_actor ON audit_entries (tenant_id, actor_id, at, id);
CREATE INDEX audit_entries_by_action ON audit_entries (tenant_id, action, at, id);
CREATE INDEX audit_entries_by_target ON audit_entries (tenant_id, target_id, at, id);
CREATE INDEX audit_entries_by_age ON audit_entries (at);

-- A value derived from each secret, so that a node with other secrets refuses to start.
CREATE TABLE secret_checks (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value BYTEA NOT NULL
);

-- What each node has used of each budget in a minute; the limiter adds up the others' rows.
CREATE TABLE rate_usage (
    window_start BIGINT NOT NULL,
    bucket TEXT COLLATE "C" NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (window_start, bucket, node)
);

-- The second wall between tenants: a session sees the rows of the tenant it has named, and none without a name.
-- '*' is the service's own work across tenants (sign-in, cleaning); FORCE makes it hold for the tables' owner too.
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tenants USING (id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE tenant_clocks ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_clocks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tenant_clocks USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE users ENABLE ROW LEVEL SECURITY;
ALTER TABLE users FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON users USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON sessions USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE signin_links ENABLE ROW LEVEL SECURITY;
ALTER TABLE signin_links FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON signin_links USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON api_keys USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE api_key_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_key_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON api_key_secrets USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE api_key_uses ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_key_uses FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON api_key_uses USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE idempotency_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_records FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON idempotency_records USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE audit_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_entries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_entries USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
