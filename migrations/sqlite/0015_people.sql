-- Customers and people as the API keeps them: what is told of them, how they are followed, and how people sign in.

ALTER TABLE organizations ADD COLUMN external_id TEXT;
ALTER TABLE organizations ADD COLUMN domains TEXT NOT NULL DEFAULT '[]';
ALTER TABLE organizations ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE organizations ADD COLUMN custom_fields TEXT NOT NULL DEFAULT '{}';
ALTER TABLE organizations ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
-- Of the last change, beside updated_at: what is changed at the same moment has an order.
ALTER TABLE organizations ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX organizations_by_external_id ON organizations (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX organizations_by_creation ON organizations (tenant_id, archived, created_at, id);
CREATE INDEX organizations_by_change ON organizations (tenant_id, updated_at, sequence, id);

-- What a clock that was ahead has left in the future would be hidden from whoever follows changes.
UPDATE organizations SET updated_at = (SELECT c.last_at FROM tenant_clocks c WHERE c.tenant_id = organizations.tenant_id)
    WHERE updated_at > (SELECT c.last_at FROM tenant_clocks c WHERE c.tenant_id = organizations.tenant_id);
UPDATE organizations SET created_at = updated_at WHERE created_at > updated_at;
UPDATE users SET updated_at = (SELECT c.last_at FROM tenant_clocks c WHERE c.tenant_id = users.tenant_id)
    WHERE updated_at > (SELECT c.last_at FROM tenant_clocks c WHERE c.tenant_id = users.tenant_id);
UPDATE users SET created_at = updated_at WHERE created_at > updated_at;

ALTER TABLE users ADD COLUMN status TEXT NOT NULL DEFAULT 'active';
ALTER TABLE users ADD COLUMN last_signed_in_at INTEGER;
ALTER TABLE users ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
CREATE INDEX users_by_creation ON users (tenant_id, created_at, id);
CREATE INDEX users_by_change ON users (tenant_id, updated_at, sequence, id);
CREATE INDEX users_by_role ON users (tenant_id, role, status, id);

-- Which provider has signed somebody in, to sign them out there too; none if it was a link or the operator.
ALTER TABLE sessions ADD COLUMN provider_id TEXT;
CREATE INDEX sessions_by_user ON sessions (tenant_id, user_id, id);
CREATE INDEX signin_links_by_user ON signin_links (tenant_id, user_id);

-- Sessions of a tenant are listed, and a key that is bound to an organization keeps it.
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, id);
CREATE INDEX ingest_keys_by_organization ON ingest_keys (tenant_id, organization_id) WHERE revoked_at IS NULL;

-- Where the people of a tenant sign in. The secret is sealed for its version of the record.
CREATE TABLE sso_providers (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    protocol TEXT NOT NULL,
    issuer TEXT NOT NULL,
    client_id TEXT NOT NULL,
    client_secret BLOB NOT NULL,
    default_role TEXT NOT NULL,
    role_map TEXT NOT NULL,
    trust_email INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT;

-- Whose e-mail addresses lead to a provider. Many may claim a domain, and one has shown that it is theirs.
CREATE TABLE sso_domains (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    domain TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    -- What the TXT record has to say.
    proof TEXT NOT NULL,
    verified_at INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, domain),
    FOREIGN KEY (tenant_id, provider_id) REFERENCES sso_providers (tenant_id, id)
) STRICT;
CREATE UNIQUE INDEX sso_domains_by_owner ON sso_domains (domain) WHERE verified_at IS NOT NULL;
CREATE INDEX sso_domains_by_provider ON sso_domains (tenant_id, provider_id);

-- A sign-on under way, used up by its first answer. What it takes to finish it is in the browser's cookie alone.
CREATE TABLE sso_flows (
    state_hash BLOB NOT NULL PRIMARY KEY,
    cookie_hash BLOB NOT NULL,
    tenant_id TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    redirect_to TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    -- Kept until it ends, so that whoever comes back a second time is noticed.
    used_at INTEGER,
    FOREIGN KEY (tenant_id, provider_id) REFERENCES sso_providers (tenant_id, id)
) STRICT;
CREATE INDEX sso_flows_by_expiry ON sso_flows (expires_at);
CREATE INDEX sso_flows_by_provider ON sso_flows (tenant_id, provider_id, expires_at);

-- Who somebody is at a provider, whatever their e-mail address is by now.
CREATE TABLE user_identities (
    tenant_id TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    subject TEXT NOT NULL,
    user_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, provider_id, subject),
    FOREIGN KEY (tenant_id, provider_id) REFERENCES sso_providers (tenant_id, id),
    FOREIGN KEY (tenant_id, user_id) REFERENCES users (tenant_id, id)
) STRICT;
CREATE INDEX user_identities_by_user ON user_identities (tenant_id, user_id, provider_id, subject);
