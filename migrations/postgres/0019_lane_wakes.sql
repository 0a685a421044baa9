-- What wakes lanes, beside them: whoever publishes writes a row of its own and waits for no lane. Whoever holds the lane
-- removes it, for they look at what is due before they give the lane back.
CREATE TABLE lane_wakes (
    kind TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    -- Of the event, so that no two writers meet.
    sequence BIGINT NOT NULL,
    PRIMARY KEY (kind, tenant_id, key, sequence)
);

-- Whether the lane last did nothing but wait for others' servers: such lanes have permits of their own.
ALTER TABLE lanes ADD COLUMN slow BOOLEAN NOT NULL DEFAULT FALSE;

-- Whether deliveries that waited when order was switched on have yet to be told their record.
ALTER TABLE webhook_states ADD COLUMN records_missing BOOLEAN NOT NULL DEFAULT FALSE;

ALTER TABLE lane_wakes ENABLE ROW LEVEL SECURITY;
ALTER TABLE lane_wakes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON lane_wakes USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
