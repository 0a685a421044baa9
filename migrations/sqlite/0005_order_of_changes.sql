-- Tickets in the order in which they changed: many changes share a millisecond, none shares a sequence.

-- Of the tick of the last change. What has not changed since this came is 0 and stands in the order of its numbers.
ALTER TABLE tickets ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;

DROP INDEX tickets_by_update;
CREATE INDEX tickets_by_update ON tickets (tenant_id, updated_at, sequence, number);
DROP INDEX tickets_live_by_update;
CREATE INDEX tickets_live_by_update ON tickets (tenant_id, updated_at, sequence, number)
    WHERE status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');

-- The changes of a customer and of a technician, however many there have been.
CREATE INDEX tickets_by_organization ON tickets (tenant_id, organization_id, updated_at, sequence, number);
CREATE INDEX tickets_by_assignee ON tickets (tenant_id, assignee_id, updated_at, sequence, number);
