-- Devices with what belongs to them, how they are found and counted, and the keys that agents report with.

-- The secret is kept as a hash alone. Bound to an organization, it reaches nobody else's devices.
CREATE TABLE ingest_keys (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    organization_id TEXT COLLATE "C",
    secret_hash BYTEA NOT NULL,
    last_four TEXT COLLATE "C" NOT NULL,
    created_by_type TEXT COLLATE "C" NOT NULL,
    created_by_id TEXT COLLATE "C",
    created_by_name TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT,
    PRIMARY KEY (tenant_id, id)
);

-- An agent may name its organization by what people call it.
CREATE INDEX organizations_by_name ON organizations (tenant_id, name);

-- The last number given to a device, beside the clock that every write of the tenant holds.
ALTER TABLE tenant_clocks ADD COLUMN device_number BIGINT NOT NULL DEFAULT 0;

-- Numbers rise with created_at and with id: one order serves for all three. A deleted one stays, as a tombstone.
CREATE TABLE devices (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    hostname TEXT COLLATE "C",
    display_name TEXT COLLATE "C",
    type TEXT COLLATE "C" NOT NULL,
    platform TEXT COLLATE "C" NOT NULL,
    os_name TEXT COLLATE "C",
    os_version TEXT COLLATE "C",
    os_build TEXT COLLATE "C",
    os_kernel TEXT COLLATE "C",
    os_arch TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    health TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C",
    manufacturer TEXT COLLATE "C",
    model TEXT COLLATE "C",
    serial_number TEXT COLLATE "C",
    asset_tag TEXT COLLATE "C",
    uuid TEXT COLLATE "C",
    cpu_model TEXT COLLATE "C",
    cpu_sockets BIGINT,
    cpu_cores BIGINT,
    memory_bytes BIGINT,
    primary_ip TEXT COLLATE "C",
    primary_mac TEXT COLLATE "C",
    last_logged_user TEXT COLLATE "C",
    last_boot_at BIGINT,
    needs_reboot BOOLEAN,
    patch_pending BIGINT,
    patch_failed BIGINT,
    patch_last_installed_at BIGINT,
    warranty_start_date TEXT COLLATE "C",
    warranty_end_date TEXT COLLATE "C",
    warranty_status TEXT COLLATE "C" NOT NULL,
    agent_name TEXT COLLATE "C",
    agent_version TEXT COLLATE "C",
    agent_device_id TEXT COLLATE "C",
    tags TEXT COLLATE "C" NOT NULL,
    custom_fields TEXT COLLATE "C" NOT NULL,
    possible_duplicate_of TEXT COLLATE "C",
    first_seen_at BIGINT,
    deleted_at BIGINT,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    -- Of the tick of the last change.
    sequence BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, number)
);
CREATE INDEX devices_live ON devices (tenant_id, number) WHERE deleted_at IS NULL;
CREATE INDEX devices_by_update ON devices (tenant_id, updated_at, sequence, number);
CREATE INDEX devices_by_organization ON devices (tenant_id, organization_id, updated_at, sequence, number);

-- Lists of a device that are shown only when they are asked for, as JSON.
CREATE TABLE device_parts (
    tenant_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    disks TEXT COLLATE "C" NOT NULL,
    volumes TEXT COLLATE "C" NOT NULL,
    nics TEXT COLLATE "C" NOT NULL,
    software TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, number)
);

-- When a device was last heard of. Apart from the devices: noting it is no change of them, and waits for none.
CREATE TABLE device_reports (
    tenant_id TEXT COLLATE "C" NOT NULL,
    device BIGINT NOT NULL,
    last_seen_at BIGINT,
    -- Of the last inventory; a sign of life alone moves the other only.
    inventory_at BIGINT,
    -- Of the last whole inventory as it came: the same again needs no reading.
    digest TEXT COLLATE "C",
    -- When time alone may change something: somebody must look at it then.
    check_at BIGINT,
    PRIMARY KEY (tenant_id, device)
);
CREATE INDEX device_reports_by_digest ON device_reports (tenant_id, digest) WHERE digest IS NOT NULL;
CREATE INDEX device_reports_due ON device_reports (tenant_id, check_at) WHERE check_at IS NOT NULL;

-- By what a device is known again when it reports.
CREATE TABLE device_identities (
    tenant_id TEXT COLLATE "C" NOT NULL,
    identity TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    added_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, identity, number)
);
CREATE INDEX device_identities_by_device ON device_identities (tenant_id, number);

-- One row for each thing a device can be found by: its type, status, tags, the words of its name and so on.
CREATE TABLE device_terms (
    tenant_id TEXT COLLATE "C" NOT NULL,
    term TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, term, number)
);

-- Which software is installed where: its name in small letters, and the versions that a device has of it.
CREATE TABLE device_software (
    tenant_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    versions TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, name, number)
);

-- How many devices there are of each kind, for the summary: of all ('*'), and of each organization ('none' for those of none).
CREATE TABLE device_counts (
    tenant_id TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    -- As it is shown.
    label TEXT COLLATE "C" NOT NULL,
    devices BIGINT NOT NULL,
    -- How often four goes into them, about: it hardly ever changes, so that counting writes no index.
    size BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dimension, value)
);
CREATE INDEX device_counts_by_size ON device_counts (tenant_id, organization_id, dimension, size);

-- Every change that somebody may want to know of, under the version that it made.
CREATE TABLE device_changes (
    tenant_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    version BIGINT NOT NULL,
    at BIGINT NOT NULL,
    actor_type TEXT COLLATE "C" NOT NULL,
    actor_id TEXT COLLATE "C",
    actor_name TEXT COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    changes TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, number, version)
);

ALTER TABLE ingest_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE ingest_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON ingest_keys USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE devices ENABLE ROW LEVEL SECURITY;
ALTER TABLE devices FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON devices USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_parts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_parts USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_reports ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_reports FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_reports USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_identities ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_identities FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_identities USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_terms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_terms USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_software ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_software FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_software USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_counts USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE device_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON device_changes USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
