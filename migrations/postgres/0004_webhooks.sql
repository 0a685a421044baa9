-- Sending again, recoveries that are cut short, and one event by its id.

-- How often a delivery was asked for again. An attempt that was begun before does not count as what was asked for.
ALTER TABLE deliveries ADD COLUMN resends BIGINT NOT NULL DEFAULT 0;
-- Whether the endpoint was switched off before the end.
ALTER TABLE webhook_recoveries ADD COLUMN cancelled BOOLEAN NOT NULL DEFAULT FALSE;

CREATE INDEX events_by_id ON events (tenant_id, id);
