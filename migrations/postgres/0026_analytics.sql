-- Figures: what each change contributes, and their sums by time.

-- Facts that have not been added up yet: written with the change that they are of.
CREATE TABLE facts_queue (
    id BIGINT NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    -- When the record was created, if its figures are also asked for by that.
    born_at BIGINT,
    expires_at BIGINT NOT NULL,
    body BYTEA NOT NULL
);

-- Facts that have been added up. They are read for the parts of a quarter of an hour at the ends of a range, and to add up again.
CREATE TABLE facts (
    tenant_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    id BIGINT NOT NULL,
    born_at BIGINT,
    expires_at BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (tenant_id, at, id)
);
CREATE INDEX facts_by_expiry ON facts (expires_at);
-- Of records that are also counted by when they were created.
CREATE INDEX facts_of_born ON facts (tenant_id, at, born_at) WHERE born_at IS NOT NULL;
CREATE INDEX facts_by_birth ON facts (tenant_id, born_at, at) WHERE born_at IS NOT NULL;

-- Sums of facts by time: of each tenant, and of all together ('' for the tenant). The grain is a number of minutes.
CREATE TABLE rollups (
    tenant_id TEXT COLLATE "C" NOT NULL,
    dimension BIGINT NOT NULL,
    grain BIGINT NOT NULL,
    start BIGINT NOT NULL,
    member TEXT COLLATE "C" NOT NULL,
    -- Counts, and percentiles; what the percentiles are computed of is read only to add to it.
    summary BYTEA NOT NULL,
    samples BYTEA NOT NULL,
    PRIMARY KEY (tenant_id, dimension, grain, start, member)
);
-- Hours of what is broken down, which are not kept for good.
CREATE INDEX rollups_of_members ON rollups (start) WHERE grain = 60 AND dimension <> 0 AND dimension < 4;

-- Sums of facts by when their record was created, and by the hour and by the day of the fact: what was created in a range as it
-- stood at a time. Both grains are numbers of minutes.
CREATE TABLE cohorts (
    tenant_id TEXT COLLATE "C" NOT NULL,
    grain BIGINT NOT NULL,
    start BIGINT NOT NULL,
    change_grain BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (tenant_id, grain, change_grain, start, changed_at)
);
CREATE INDEX cohorts_by_change ON cohorts (tenant_id, change_grain, grain, changed_at, start);

-- What the platform tells of its nodes.
ALTER TABLE keyring_nodes ADD COLUMN version TEXT COLLATE "C";
ALTER TABLE keyring_nodes ADD COLUMN started_at BIGINT;

-- What was there before there were facts, and how far it has been counted, by tenant.
CREATE TABLE fact_backfills (
    tenant_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    position TEXT COLLATE "C" NOT NULL,
    -- The time of the tenant's clock then.
    at BIGINT NOT NULL
);
INSERT INTO fact_backfills (tenant_id, kind, position, at) SELECT tenant_id, 'tickets', '', last_at FROM tenant_clocks;

ALTER TABLE facts_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE facts_queue FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON facts_queue USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE facts ENABLE ROW LEVEL SECURITY;
ALTER TABLE facts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON facts USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE rollups ENABLE ROW LEVEL SECURITY;
ALTER TABLE rollups FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON rollups USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE cohorts ENABLE ROW LEVEL SECURITY;
ALTER TABLE cohorts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cohorts USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE fact_backfills ENABLE ROW LEVEL SECURITY;
ALTER TABLE fact_backfills FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON fact_backfills USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
