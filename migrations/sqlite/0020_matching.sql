-- How a report finds its organization and its device, and what people filter and sort devices by.

-- The tag that the agent was installed with.
ALTER TABLE devices ADD COLUMN agent_tag TEXT;

-- The only ingest key that has ever reported the device; `*` of several, null where it is not known or an import made it.
ALTER TABLE device_reports ADD COLUMN ingest_key_id TEXT;
CREATE INDEX device_reports_by_key ON device_reports (tenant_id, ingest_key_id, device) WHERE ingest_key_id IS NOT NULL;

-- The name in small letters: agents' tags ignore case.
ALTER TABLE organizations ADD COLUMN folded_name TEXT;
UPDATE organizations SET folded_name = lower(name);
CREATE INDEX organizations_by_folded_name ON organizations (tenant_id, folded_name);

-- What lists are sorted by.
ALTER TABLE devices ADD COLUMN sort_name TEXT GENERATED ALWAYS AS (lower(hostname)) VIRTUAL;
CREATE INDEX devices_by_hostname ON devices (tenant_id, sort_name, number) WHERE deleted_at IS NULL;
CREATE INDEX device_reports_by_last_seen ON device_reports (tenant_id, last_seen_at, device);

-- What they are filtered by.
INSERT INTO device_terms (tenant_id, term, number)
    SELECT tenant_id, 'y:' || warranty_status, number FROM devices WHERE deleted_at IS NULL;
INSERT INTO device_terms (tenant_id, term, number)
    SELECT tenant_id, 'n:' || lower(os_name), number FROM devices WHERE deleted_at IS NULL AND os_name IS NOT NULL;
INSERT INTO device_terms (tenant_id, term, number)
    SELECT tenant_id, 'f:duplicate', number FROM devices WHERE deleted_at IS NULL AND possible_duplicate_of IS NOT NULL;
INSERT INTO device_terms (tenant_id, term, number)
    SELECT tenant_id, 'f:reboot', number FROM devices WHERE deleted_at IS NULL AND needs_reboot IS TRUE;
