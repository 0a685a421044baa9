-- Which record was written, for those who keep a copy of records: read over all tenants, behind the commits.
CREATE TABLE changes (
    -- The transaction, where several are under way at a time.
    written_by BIGINT NOT NULL DEFAULT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT),
    number BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    record_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (written_by, number)
);

-- How far each reader has come. What all have passed is removed.
CREATE TABLE change_readers (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    written_by BIGINT NOT NULL,
    number BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);

ALTER TABLE changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE changes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON changes USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
