-- Accounts of tenants at clouds, the machines in them, and the operations that make machines.

-- The credentials are sealed for their version, which changes only with them.
CREATE TABLE cloud_providers (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    credentials BYTEA NOT NULL,
    credentials_version BIGINT NOT NULL,
    credentials_hint TEXT COLLATE "C" NOT NULL,
    regions TEXT COLLATE "C" NOT NULL,
    enabled BOOLEAN NOT NULL,
    -- What verifying has found out; the state that is shown also depends on `enabled`.
    status TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C",
    verification TEXT COLLATE "C",
    last_verified_at BIGINT,
    -- When it is verified next.
    verify_at BIGINT,
    verify_failures BIGINT NOT NULL DEFAULT 0,
    created_by_type TEXT COLLATE "C" NOT NULL,
    created_by_id TEXT COLLATE "C",
    created_by_name TEXT COLLATE "C",
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX cloud_providers_by_creation ON cloud_providers (tenant_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX cloud_providers_by_deletion ON cloud_providers (deleted_at) WHERE deleted_at IS NOT NULL;

-- What is synced by itself: a region of a provider.
CREATE TABLE cloud_regions (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    provider_id TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    -- When it is synced next; none while its provider is not.
    sync_at BIGINT,
    last_sync_at BIGINT,
    last_sync_error TEXT COLLATE "C",
    failures BIGINT NOT NULL DEFAULT 0,
    -- The account that it was last synced completely from.
    account_id TEXT COLLATE "C",
    PRIMARY KEY (tenant_id, provider_id, region),
    FOREIGN KEY (tenant_id, provider_id) REFERENCES cloud_providers (tenant_id, id)
);

CREATE TABLE vms (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    provider_id TEXT COLLATE "C" NOT NULL,
    external_id TEXT COLLATE "C",
    name TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    zone TEXT COLLATE "C",
    size_id TEXT COLLATE "C" NOT NULL,
    vcpus BIGINT,
    memory_bytes BIGINT,
    disk_bytes BIGINT,
    image TEXT COLLATE "C",
    state TEXT COLLATE "C" NOT NULL,
    raw_state TEXT COLLATE "C" NOT NULL,
    intended_state TEXT COLLATE "C",
    public_ips TEXT COLLATE "C" NOT NULL,
    private_ips TEXT COLLATE "C" NOT NULL,
    tags TEXT COLLATE "C" NOT NULL,
    managed BOOLEAN NOT NULL,
    cost TEXT COLLATE "C",
    organization_id TEXT COLLATE "C",
    -- Whether the organization was given when the machine was ordered; a tag does not change it then.
    organization_given BOOLEAN NOT NULL,
    operation_id TEXT COLLATE "C",
    first_seen_at BIGINT,
    -- Of a machine that the last whole sync has found it is the time of that sync.
    last_seen_at BIGINT,
    missing_since BIGINT,
    terminated_at BIGINT,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    deleted_at BIGINT,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, provider_id) REFERENCES cloud_providers (tenant_id, id)
);
-- Of all machines, also those that the cloud has given no id yet: a provider is removed only when it has none.
CREATE UNIQUE INDEX vms_by_external_id ON vms (tenant_id, provider_id, external_id);
CREATE INDEX vms_by_creation ON vms (tenant_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX vms_by_provider ON vms (tenant_id, provider_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX vms_by_organization ON vms (tenant_id, organization_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX vms_by_state ON vms (tenant_id, state, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX vms_by_region_and_state ON vms (tenant_id, region, state, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX vms_by_change ON vms (tenant_id, updated_at, sequence, id);
CREATE INDEX vms_by_operation ON vms (tenant_id, operation_id) WHERE operation_id IS NOT NULL;
CREATE INDEX vms_by_region ON vms (tenant_id, provider_id, region, id) WHERE deleted_at IS NULL;
CREATE INDEX vms_live ON vms (tenant_id, provider_id, region, id) WHERE deleted_at IS NULL AND terminated_at IS NULL;
CREATE INDEX vms_by_end ON vms (tenant_id, terminated_at, id) WHERE deleted_at IS NULL AND terminated_at IS NOT NULL;
CREATE INDEX vms_by_deletion ON vms (deleted_at) WHERE deleted_at IS NOT NULL;

-- An order for one machine. What may be a secret of it is sealed, and erased at its end.
CREATE TABLE vm_operations (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    vm_id TEXT COLLATE "C" NOT NULL,
    provider_id TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    user_data BYTEA,
    attempt BIGINT NOT NULL DEFAULT 0,
    next_at BIGINT,
    -- Since when it waits to be sent: it was ordered then, or somebody has asked for another attempt.
    accepted_at BIGINT NOT NULL,
    -- When it was sent first since then.
    first_sent_at BIGINT,
    -- Since when it is not known whether the cloud has it; and for which account it is, and with which credentials it was sent.
    -- Before it is sent both are of what may be a secret: where the account was not known, it is for the credentials of then.
    submitted_at BIGINT,
    account_id TEXT COLLATE "C",
    credentials_version BIGINT,
    error_code TEXT COLLATE "C",
    error_detail TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, vm_id) REFERENCES vms (tenant_id, id)
);
CREATE INDEX vm_operations_due ON vm_operations (tenant_id, provider_id, region, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX vm_operations_by_vm ON vm_operations (tenant_id, vm_id);

ALTER TABLE cloud_providers ENABLE ROW LEVEL SECURITY;
ALTER TABLE cloud_providers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cloud_providers USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE cloud_regions ENABLE ROW LEVEL SECURITY;
ALTER TABLE cloud_regions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cloud_regions USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE vms ENABLE ROW LEVEL SECURITY;
ALTER TABLE vms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vms USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE vm_operations ENABLE ROW LEVEL SECURITY;
ALTER TABLE vm_operations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vm_operations USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
