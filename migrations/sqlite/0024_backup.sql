-- Backups: the policy, the reports of jobs, and the posture that follows from both.

-- What a level sets; the owner is an organization, a device, or '' for the tenant.
CREATE TABLE backup_configs (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    owner_id TEXT NOT NULL,
    id TEXT NOT NULL,
    level TEXT NOT NULL,
    policy TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, owner_id)
) STRICT;

-- Runs: those that were reported, and those that were scheduled and did not come, which have no external id. They stay with the
-- organization that the device had then (the id of zeros for none).
CREATE TABLE backup_runs (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    external_id TEXT,
    device_id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    job TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT NOT NULL,
    target TEXT NOT NULL,
    status TEXT NOT NULL,
    is_declared INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    -- Of one that did not come: until when it was waited for.
    received_at INTEGER NOT NULL,
    exit_code INTEGER,
    reasons TEXT NOT NULL,
    outcome TEXT NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE UNIQUE INDEX backup_runs_by_external_id ON backup_runs (tenant_id, external_id) WHERE external_id IS NOT NULL;
-- Backups alone: they are counted, and decide which scheduled runs were missed.
CREATE INDEX backup_runs_by_device ON backup_runs (tenant_id, device_id, ended_at, status, started_at) WHERE kind = 'backup';
-- The organization first: a query for a device must not take this index, as an unanalyzed table makes PostgreSQL do.
CREATE INDEX backup_runs_by_organization ON backup_runs (organization_id, tenant_id, ended_at, status) WHERE kind = 'backup';
CREATE INDEX backup_runs_by_receipt ON backup_runs (received_at);

-- What is known of the backups of a device, and what it adds to its organization (the id of zeros for none).
CREATE TABLE backup_devices (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    device_id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    class TEXT NOT NULL,
    known_since INTEGER NOT NULL,
    record TEXT NOT NULL,
    share TEXT NOT NULL,
    findings TEXT NOT NULL,
    -- Of the worst reason: 0 for none.
    severity INTEGER NOT NULL,
    -- Of devices in scope alone.
    last_success_at INTEGER,
    verified_at INTEGER,
    failures INTEGER NOT NULL,
    -- When time alone changes it next.
    next_at INTEGER,
    PRIMARY KEY (tenant_id, device_id)
) STRICT;
CREATE INDEX backup_devices_by_organization ON backup_devices (tenant_id, organization_id, device_id);
CREATE INDEX backup_devices_by_severity ON backup_devices (tenant_id, organization_id, severity, device_id) WHERE severity > 0;
CREATE INDEX backup_devices_by_success ON backup_devices (tenant_id, organization_id, last_success_at) WHERE last_success_at IS NOT NULL;
CREATE INDEX backup_devices_by_verification ON backup_devices (tenant_id, organization_id, verified_at) WHERE verified_at IS NOT NULL;
CREATE INDEX backup_devices_by_failures ON backup_devices (tenant_id, organization_id, failures) WHERE failures > 0;
CREATE INDEX backup_devices_due ON backup_devices (tenant_id, next_at) WHERE next_at IS NOT NULL;

-- How each organization stands (the id of zeros for devices without one). The numbers beside the record are those that are summed up.
CREATE TABLE backup_postures (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    organization_id TEXT NOT NULL,
    protection_health TEXT NOT NULL,
    recoverability_health TEXT NOT NULL,
    health TEXT NOT NULL,
    total INTEGER NOT NULL,
    in_scope INTEGER NOT NULL,
    protected INTEGER NOT NULL,
    never_succeeded INTEGER NOT NULL,
    success INTEGER NOT NULL,
    warning INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    record TEXT NOT NULL,
    next_at INTEGER,
    PRIMARY KEY (tenant_id, organization_id)
) STRICT;
-- With the numbers that are summed up: the totals of every page are read from here alone.
CREATE INDEX backup_postures_by_health ON backup_postures (tenant_id, health, organization_id, total, in_scope, protected,
    never_succeeded, success, warning, failed, missed, size_bytes);
CREATE INDEX backup_postures_due ON backup_postures (tenant_id, next_at) WHERE next_at IS NOT NULL;

-- What changes of other records leave to be done: a device or an organization to look at, or the devices below a policy, of
-- which those up to a position are done.
CREATE TABLE backup_pending (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL,
    record_id TEXT NOT NULL,
    position TEXT NOT NULL,
    PRIMARY KEY (tenant_id, kind, record_id)
) STRICT;

INSERT INTO backup_pending (tenant_id, kind, record_id, position)
    SELECT tenant_id, 'organization', id, '' FROM organizations;
INSERT INTO backup_pending (tenant_id, kind, record_id, position)
    SELECT tenant_id, 'device', id, '' FROM devices WHERE deleted_at IS NULL;
