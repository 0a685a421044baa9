-- Which record was written, for those who keep a copy of records: read over all tenants, behind the commits.
CREATE TABLE changes (
    -- The transaction, where several are under way at a time.
    written_by INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tenant_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    record_id TEXT NOT NULL,
    PRIMARY KEY (written_by, number)
) STRICT, WITHOUT ROWID;

-- How far each reader has come. What all have passed is removed.
CREATE TABLE change_readers (
    id TEXT NOT NULL PRIMARY KEY,
    written_by INTEGER NOT NULL,
    number INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;
