-- Devices with what belongs to them, how they are found and counted, and the keys that agents report with.

-- The secret is kept as a hash alone. Bound to an organization, it reaches nobody else's devices.
CREATE TABLE ingest_keys (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL UNIQUE,
    organization_id TEXT,
    secret_hash BLOB NOT NULL,
    last_four TEXT NOT NULL,
    created_by_type TEXT NOT NULL,
    created_by_id TEXT,
    created_by_name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    PRIMARY KEY (tenant_id, id)
) STRICT;

-- An agent may name its organization by what people call it.
CREATE INDEX organizations_by_name ON organizations (tenant_id, name);

-- The last number given to a device, beside the clock that every write of the tenant holds.
ALTER TABLE tenant_clocks ADD COLUMN device_number INTEGER NOT NULL DEFAULT 0;

-- Numbers rise with created_at and with id: one order serves for all three. A deleted one stays, as a tombstone.
CREATE TABLE devices (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    hostname TEXT,
    display_name TEXT,
    type TEXT NOT NULL,
    platform TEXT NOT NULL,
    os_name TEXT,
    os_version TEXT,
    os_build TEXT,
    os_kernel TEXT,
    os_arch TEXT,
    status TEXT NOT NULL,
    health TEXT NOT NULL,
    organization_id TEXT,
    manufacturer TEXT,
    model TEXT,
    serial_number TEXT,
    asset_tag TEXT,
    uuid TEXT,
    cpu_model TEXT,
    cpu_sockets INTEGER,
    cpu_cores INTEGER,
    memory_bytes INTEGER,
    primary_ip TEXT,
    primary_mac TEXT,
    last_logged_user TEXT,
    last_boot_at INTEGER,
    needs_reboot INTEGER,
    patch_pending INTEGER,
    patch_failed INTEGER,
    patch_last_installed_at INTEGER,
    warranty_start_date TEXT,
    warranty_end_date TEXT,
    warranty_status TEXT NOT NULL,
    agent_name TEXT,
    agent_version TEXT,
    agent_device_id TEXT,
    tags TEXT NOT NULL,
    custom_fields TEXT NOT NULL,
    possible_duplicate_of TEXT,
    first_seen_at INTEGER,
    deleted_at INTEGER,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Of the tick of the last change.
    sequence INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, number)
) STRICT;
CREATE INDEX devices_live ON devices (tenant_id, number) WHERE deleted_at IS NULL;
CREATE INDEX devices_by_update ON devices (tenant_id, updated_at, sequence, number);
CREATE INDEX devices_by_organization ON devices (tenant_id, organization_id, updated_at, sequence, number);

-- Lists of a device that are shown only when they are asked for, as JSON.
CREATE TABLE device_parts (
    tenant_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    disks TEXT NOT NULL,
    volumes TEXT NOT NULL,
    nics TEXT NOT NULL,
    software TEXT NOT NULL,
    PRIMARY KEY (tenant_id, number)
) STRICT;

-- When a device was last heard of. Apart from the devices: noting it is no change of them, and waits for none.
CREATE TABLE device_reports (
    tenant_id TEXT NOT NULL,
    device INTEGER NOT NULL,
    last_seen_at INTEGER,
    -- Of the last inventory; a sign of life alone moves the other only.
    inventory_at INTEGER,
    -- Of the last whole inventory as it came: the same again needs no reading.
    digest TEXT,
    -- When time alone may change something: somebody must look at it then.
    check_at INTEGER,
    PRIMARY KEY (tenant_id, device)
) STRICT;
CREATE INDEX device_reports_by_digest ON device_reports (tenant_id, digest) WHERE digest IS NOT NULL;
CREATE INDEX device_reports_due ON device_reports (tenant_id, check_at) WHERE check_at IS NOT NULL;

-- By what a device is known again when it reports.
CREATE TABLE device_identities (
    tenant_id TEXT NOT NULL,
    identity TEXT NOT NULL,
    number INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, identity, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX device_identities_by_device ON device_identities (tenant_id, number);

-- One row for each thing a device can be found by: its type, status, tags, the words of its name and so on.
CREATE TABLE device_terms (
    tenant_id TEXT NOT NULL,
    term TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, term, number)
) STRICT, WITHOUT ROWID;

-- Which software is installed where: its name in small letters, and the versions that a device has of it.
CREATE TABLE device_software (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    versions TEXT NOT NULL,
    PRIMARY KEY (tenant_id, name, number)
) STRICT, WITHOUT ROWID;

-- How many devices there are of each kind, for the summary: of all ('*'), and of each organization ('none' for those of none).
CREATE TABLE device_counts (
    tenant_id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    value TEXT NOT NULL,
    -- As it is shown.
    label TEXT NOT NULL,
    devices INTEGER NOT NULL,
    -- How often four goes into them, about: it hardly ever changes, so that counting writes no index.
    size INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dimension, value)
) STRICT, WITHOUT ROWID;
CREATE INDEX device_counts_by_size ON device_counts (tenant_id, organization_id, dimension, size);

-- Every change that somebody may want to know of, under the version that it made.
CREATE TABLE device_changes (
    tenant_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    version INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT,
    actor_name TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    changes TEXT NOT NULL,
    PRIMARY KEY (tenant_id, number, version)
) STRICT;
