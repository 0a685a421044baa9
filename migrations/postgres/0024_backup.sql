-- Backups: the policy, the reports of jobs, and the posture that follows from both.

-- What a level sets; the owner is an organization, a device, or '' for the tenant.
CREATE TABLE backup_configs (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    owner_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    level TEXT COLLATE "C" NOT NULL,
    policy TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, owner_id)
);

-- Runs: those that were reported, and those that were scheduled and did not come, which have no external id. They stay with the
-- organization that the device had then (the id of zeros for none).
CREATE TABLE backup_runs (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    external_id TEXT COLLATE "C",
    device_id TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    target TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    is_declared BOOLEAN NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    -- Of one that did not come: until when it was waited for.
    received_at BIGINT NOT NULL,
    exit_code BIGINT,
    reasons TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX backup_runs_by_external_id ON backup_runs (tenant_id, external_id) WHERE external_id IS NOT NULL;
-- Backups alone: they are counted, and decide which scheduled runs were missed.
CREATE INDEX backup_runs_by_device ON backup_runs (tenant_id, device_id, ended_at, status, started_at) WHERE kind = 'backup';
-- The organization first: a query for a device must not take this index, as an unanalyzed table makes PostgreSQL do.
CREATE INDEX backup_runs_by_organization ON backup_runs (organization_id, tenant_id, ended_at, status) WHERE kind = 'backup';
CREATE INDEX backup_runs_by_receipt ON backup_runs (received_at);

-- What is known of the backups of a device, and what it adds to its organization (the id of zeros for none).
CREATE TABLE backup_devices (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    device_id TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    class TEXT COLLATE "C" NOT NULL,
    known_since BIGINT NOT NULL,
    record TEXT COLLATE "C" NOT NULL,
    share TEXT COLLATE "C" NOT NULL,
    findings TEXT COLLATE "C" NOT NULL,
    -- Of the worst reason: 0 for none.
    severity BIGINT NOT NULL,
    -- Of devices in scope alone.
    last_success_at BIGINT,
    verified_at BIGINT,
    failures BIGINT NOT NULL,
    -- When time alone changes it next.
    next_at BIGINT,
    PRIMARY KEY (tenant_id, device_id)
);
CREATE INDEX backup_devices_by_organization ON backup_devices (tenant_id, organization_id, device_id);
CREATE INDEX backup_devices_by_severity ON backup_devices (tenant_id, organization_id, severity, device_id) WHERE severity > 0;
CREATE INDEX backup_devices_by_success ON backup_devices (tenant_id, organization_id, last_success_at) WHERE last_success_at IS NOT NULL;
CREATE INDEX backup_devices_by_verification ON backup_devices (tenant_id, organization_id, verified_at) WHERE verified_at IS NOT NULL;
CREATE INDEX backup_devices_by_failures ON backup_devices (tenant_id, organization_id, failures) WHERE failures > 0;
CREATE INDEX backup_devices_due ON backup_devices (tenant_id, next_at) WHERE next_at IS NOT NULL;

-- How each organization stands (the id of zeros for devices without one). The numbers beside the record are those that are summed up.
CREATE TABLE backup_postures (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    organization_id TEXT COLLATE "C" NOT NULL,
    protection_health TEXT COLLATE "C" NOT NULL,
    recoverability_health TEXT COLLATE "C" NOT NULL,
    health TEXT COLLATE "C" NOT NULL,
    total BIGINT NOT NULL,
    in_scope BIGINT NOT NULL,
    protected BIGINT NOT NULL,
    never_succeeded BIGINT NOT NULL,
    success BIGINT NOT NULL,
    warning BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    missed BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    record TEXT COLLATE "C" NOT NULL,
    next_at BIGINT,
    PRIMARY KEY (tenant_id, organization_id)
);
-- With the numbers that are summed up: the totals of every page are read from here alone.
CREATE INDEX backup_postures_by_health ON backup_postures (tenant_id, health, organization_id, total, in_scope, protected,
    never_succeeded, success, warning, failed, missed, size_bytes);
CREATE INDEX backup_postures_due ON backup_postures (tenant_id, next_at) WHERE next_at IS NOT NULL;

-- What changes of other records leave to be done: a device or an organization to look at, or the devices below a policy, of
-- which those up to a position are done.
CREATE TABLE backup_pending (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    kind TEXT COLLATE "C" NOT NULL,
    record_id TEXT COLLATE "C" NOT NULL,
    position TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, kind, record_id)
);

ALTER TABLE backup_configs ENABLE ROW LEVEL SECURITY;
ALTER TABLE backup_configs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backup_configs USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE backup_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE backup_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backup_runs USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE backup_devices ENABLE ROW LEVEL SECURITY;
ALTER TABLE backup_devices FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backup_devices USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE backup_postures ENABLE ROW LEVEL SECURITY;
ALTER TABLE backup_postures FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backup_postures USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE backup_pending ENABLE ROW LEVEL SECURITY;
ALTER TABLE backup_pending FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backup_pending USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');

INSERT INTO backup_pending (tenant_id, kind, record_id, position)
    SELECT tenant_id, 'organization', id, '' FROM organizations;
INSERT INTO backup_pending (tenant_id, kind, record_id, position)
    SELECT tenant_id, 'device', id, '' FROM devices WHERE deleted_at IS NULL;
