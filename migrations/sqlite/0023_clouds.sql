-- Accounts of tenants at clouds, the machines in them, and the operations that make machines.

-- The credentials are sealed for their version, which changes only with them.
CREATE TABLE cloud_providers (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    credentials BLOB NOT NULL,
    credentials_version INTEGER NOT NULL,
    credentials_hint TEXT NOT NULL,
    regions TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    -- What verifying has found out; the state that is shown also depends on `enabled`.
    status TEXT NOT NULL,
    account_id TEXT,
    verification TEXT,
    last_verified_at INTEGER,
    -- When it is verified next.
    verify_at INTEGER,
    verify_failures INTEGER NOT NULL DEFAULT 0,
    created_by_type TEXT NOT NULL,
    created_by_id TEXT,
    created_by_name TEXT,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX cloud_providers_by_creation ON cloud_providers (tenant_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX cloud_providers_by_deletion ON cloud_providers (deleted_at) WHERE deleted_at IS NOT NULL;

-- What is synced by itself: a region of a provider.
CREATE TABLE cloud_regions (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    provider_id TEXT NOT NULL,
    region TEXT NOT NULL,
    -- When it is synced next; none while its provider is not.
    sync_at INTEGER,
    last_sync_at INTEGER,
    last_sync_error TEXT,
    failures INTEGER NOT NULL DEFAULT 0,
    -- The account that it was last synced completely from.
    account_id TEXT,
    PRIMARY KEY (tenant_id, provider_id, region),
    FOREIGN KEY (tenant_id, provider_id) REFERENCES cloud_providers (tenant_id, id)
) STRICT;

CREATE TABLE vms (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    external_id TEXT,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    zone TEXT,
    size_id TEXT NOT NULL,
    vcpus INTEGER,
    memory_bytes INTEGER,
    disk_bytes INTEGER,
    image TEXT,
    state TEXT NOT NULL,
    raw_state TEXT NOT NULL,
    intended_state TEXT,
    public_ips TEXT NOT NULL,
    private_ips TEXT NOT NULL,
    tags TEXT NOT NULL,
    managed INTEGER NOT NULL,
    cost TEXT,
    organization_id TEXT,
    -- Whether the organization was given when the machine was ordered; a tag does not change it then.
    organization_given INTEGER NOT NULL,
    operation_id TEXT,
    first_seen_at INTEGER,
    -- Of a machine that the last whole sync has found it is the time of that sync.
    last_seen_at INTEGER,
    missing_since INTEGER,
    terminated_at INTEGER,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    deleted_at INTEGER,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, provider_id) REFERENCES cloud_providers (tenant_id, id)
) STRICT;
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
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    vm_id TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    region TEXT NOT NULL,
    status TEXT NOT NULL,
    spec TEXT NOT NULL,
    user_data BLOB,
    attempt INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER,
    -- Since when it waits to be sent: it was ordered then, or somebody has asked for another attempt.
    accepted_at INTEGER NOT NULL,
    -- When it was sent first since then.
    first_sent_at INTEGER,
    -- Since when it is not known whether the cloud has it; and for which account it is, and with which credentials it was sent.
    -- Before it is sent both are of what may be a secret: where the account was not known, it is for the credentials of then.
    submitted_at INTEGER,
    account_id TEXT,
    credentials_version INTEGER,
    error_code TEXT,
    error_detail TEXT,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, vm_id) REFERENCES vms (tenant_id, id)
) STRICT;
CREATE INDEX vm_operations_due ON vm_operations (tenant_id, provider_id, region, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX vm_operations_by_vm ON vm_operations (tenant_id, vm_id);
