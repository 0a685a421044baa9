-- The indexes of what is not done, spelt so that writing a ticket makes no list. To see whether a status is IN five, SQLite makes
-- a table of the five, for each of these indexes and each statement. Now it compares first, and hardly ever comes to the list,
-- which stays: by it SQLite knows that a query for just these five may use the index, and so do older versions of this service.

DROP INDEX tickets_live_by_update;
CREATE INDEX tickets_live_by_update ON tickets (tenant_id, updated_at, sequence, number)
    WHERE status = 'new' OR status = 'open' OR status = 'in_progress' OR status = 'pending' OR status = 'on_hold'
        OR status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');
DROP INDEX tickets_live_by_priority;
CREATE INDEX tickets_live_by_priority ON tickets (tenant_id, priority, number)
    WHERE status = 'new' OR status = 'open' OR status = 'in_progress' OR status = 'pending' OR status = 'on_hold'
        OR status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');
DROP INDEX tickets_live_by_due_date;
CREATE INDEX tickets_live_by_due_date ON tickets (tenant_id, due_at, number)
    WHERE status = 'new' OR status = 'open' OR status = 'in_progress' OR status = 'pending' OR status = 'on_hold'
        OR status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');
