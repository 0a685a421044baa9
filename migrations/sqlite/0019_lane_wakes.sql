-- What wakes lanes, beside them: whoever publishes writes a row of its own and waits for no lane. Whoever holds the lane
-- removes it, for they look at what is due before they give the lane back.
CREATE TABLE lane_wakes (
    kind TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    key TEXT NOT NULL,
    -- Of the event, so that no two writers meet.
    sequence INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant_id, key, sequence)
) STRICT, WITHOUT ROWID;

-- Whether the lane last did nothing but wait for others' servers: such lanes have permits of their own.
ALTER TABLE lanes ADD COLUMN slow INTEGER NOT NULL DEFAULT 0;

-- Whether deliveries that waited when order was switched on have yet to be told their record.
ALTER TABLE webhook_states ADD COLUMN records_missing INTEGER NOT NULL DEFAULT 0;
