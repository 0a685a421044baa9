-- Figures: what each change contributes, and their sums by time.

-- Facts that have not been added up yet: written with the change that they are of.
CREATE TABLE facts_queue (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    -- When the record was created, if its figures are also asked for by that.
    born_at INTEGER,
    expires_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Rows of this file have kilobytes: without rowid, a search would read whole rows on its way.

-- Facts that have been added up. They are read for the parts of a quarter of an hour at the ends of a range, and to add up again.
CREATE TABLE facts (
    tenant_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    id INTEGER NOT NULL,
    born_at INTEGER,
    expires_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant_id, at, id)
) STRICT;
CREATE INDEX facts_by_expiry ON facts (expires_at);
-- Of records that are also counted by when they were created.
CREATE INDEX facts_of_born ON facts (tenant_id, at, born_at) WHERE born_at IS NOT NULL;
CREATE INDEX facts_by_birth ON facts (tenant_id, born_at, at) WHERE born_at IS NOT NULL;

-- Sums of facts by time: of each tenant, and of all together ('' for the tenant). The grain is a number of minutes.
CREATE TABLE rollups (
    tenant_id TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    grain INTEGER NOT NULL,
    start INTEGER NOT NULL,
    member TEXT NOT NULL,
    -- Counts, and percentiles; what the percentiles are computed of is read only to add to it.
    summary BLOB NOT NULL,
    samples BLOB NOT NULL,
    PRIMARY KEY (tenant_id, dimension, grain, start, member)
) STRICT;
-- Hours of what is broken down, which are not kept for good.
CREATE INDEX rollups_of_members ON rollups (start) WHERE grain = 60 AND dimension <> 0 AND dimension < 4;

-- Sums of facts by when their record was created, and by the hour and by the day of the fact: what was created in a range as it
-- stood at a time. Both grains are numbers of minutes.
CREATE TABLE cohorts (
    tenant_id TEXT NOT NULL,
    grain INTEGER NOT NULL,
    start INTEGER NOT NULL,
    change_grain INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant_id, grain, change_grain, start, changed_at)
) STRICT;
CREATE INDEX cohorts_by_change ON cohorts (tenant_id, change_grain, grain, changed_at, start);

-- What the platform tells of its nodes.
ALTER TABLE keyring_nodes ADD COLUMN version TEXT;
ALTER TABLE keyring_nodes ADD COLUMN started_at INTEGER;

-- What was there before there were facts, and how far it has been counted, by tenant.
CREATE TABLE fact_backfills (
    tenant_id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    position TEXT NOT NULL,
    -- The time of the tenant's clock then.
    at INTEGER NOT NULL
) STRICT;
INSERT INTO fact_backfills (tenant_id, kind, position, at) SELECT tenant_id, 'tickets', '', last_at FROM tenant_clocks;
