-- Tenants, people, credentials, the audit trail and what the kernel itself needs.
-- Times are milliseconds since 1970; JSON is text; every record of a tenant starts with tenant_id.

CREATE TABLE tenants (
    id TEXT NOT NULL PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- One row per tenant: every write of the tenant's records moves it, so that times and sequences never go back.
CREATE TABLE tenant_clocks (
    tenant_id TEXT NOT NULL PRIMARY KEY REFERENCES tenants (id),
    last_at INTEGER NOT NULL,
    sequence INTEGER NOT NULL
) STRICT;

CREATE TABLE users (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    email TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    platform_operator INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, email)
) STRICT;

-- Only a hash of the cookie's token is kept.
CREATE TABLE sessions (
    token_hash BLOB NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_use ON sessions (last_seen_at);

CREATE TABLE signin_links (
    token_hash BLOB NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX signin_links_by_expiry ON signin_links (expires_at);

CREATE TABLE api_keys (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    allowed_cidrs TEXT NOT NULL,
    prefix TEXT NOT NULL,
    last_four TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER,
    -- Who made it: a key or a person, never both.
    maker_key_id TEXT,
    maker_user_id TEXT,
    created_by_type TEXT NOT NULL,
    created_by_id TEXT,
    created_by_name TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX api_keys_by_creation ON api_keys (tenant_id, created_at, id);
-- Revoked keys stay for ever; what is asked often looks only at the others.
CREATE INDEX api_keys_live ON api_keys (tenant_id, created_at, id) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_end ON api_keys (tenant_id, expires_at) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_maker ON api_keys (tenant_id, maker_key_id) WHERE revoked_at IS NULL;

-- One row per plaintext that works: a rotated key has two until its overlap ends.
CREATE TABLE api_key_secrets (
    public_id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    secret_hash BLOB NOT NULL,
    valid_until INTEGER,
    FOREIGN KEY (tenant_id, key_id) REFERENCES api_keys (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX api_key_secrets_by_key ON api_key_secrets (tenant_id, key_id);
CREATE INDEX api_key_secrets_by_end ON api_key_secrets (valid_until);

-- When a key was last seen. Apart from the keys, so that noting it never waits for a change of them.
CREATE TABLE api_key_uses (
    tenant_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    last_used_at INTEGER NOT NULL,
    last_used_ip TEXT NOT NULL,
    PRIMARY KEY (tenant_id, key_id)
) STRICT, WITHOUT ROWID;

-- Answers kept for a repeated Idempotency-Key. The body is sealed, since it may hold a secret.
CREATE TABLE idempotency_records (
    tenant_id TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    route TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    status INTEGER NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, actor_id, route, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);

CREATE TABLE audit_entries (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT,
    actor_name TEXT NOT NULL,
    action TEXT NOT NULL,
    target_type TEXT NOT NULL,
    target_id TEXT,
    address TEXT,
    credential_type TEXT,
    credential_id TEXT,
    request_id TEXT,
    changes TEXT,
    PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX audit_entries_by_time ON audit_entries (tenant_id, at, id);
CREATE INDEX audit_entries_by_actor ON audit_entries (tenant_id, actor_id, at, id);
CREATE INDEX audit_entries_by_action ON audit_entries (tenant_id, action, at, id);
CREATE INDEX audit_entries_by_target ON audit_entries (tenant_id, target_id, at, id);
CREATE INDEX audit_entries_by_age ON audit_entries (at);

-- A value derived from each secret, so that a node with other secrets refuses to start.
CREATE TABLE secret_checks (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- What each node has used of each budget in a minute; the limiter adds up the others' rows.
CREATE TABLE rate_usage (
    window_start INTEGER NOT NULL,
    bucket TEXT NOT NULL,
    node TEXT NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (window_start, bucket, node)
) STRICT, WITHOUT ROWID;
