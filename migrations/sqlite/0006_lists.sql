-- What lists with several filters walk along. Each index is written with every row, so there is one only where two sets
-- can both be large and have little in common; what else is combined is looked at row by row, within a bound.

-- What one actor did of one kind. A record's own entries are few, so that the other filters are judged on them.
CREATE INDEX audit_entries_by_actor_and_action ON audit_entries (tenant_id, actor_id, action, at, id);
-- Along this one PostgreSQL would read the trail of one tenant, past the entries of all others. What is too old is found
-- tenant by tenant, so that an entry is written into as many indexes as before.
DROP INDEX audit_entries_by_age;

-- A tenant's endpoints are few, so that a kind or a status, of all endpoints, is one arm for each of them: one index
-- serves with and without an endpoint. That of statuses is no dearer than the one it takes the place of.
CREATE INDEX deliveries_by_type ON deliveries (tenant_id, webhook_id, event_type, id);
DROP INDEX deliveries_by_status;
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, webhook_id, status, id) WHERE status <> 'succeeded';

-- Keys that are not revoked have an index of their own already; many of them have expired.
CREATE INDEX api_keys_revoked ON api_keys (tenant_id, created_at, id) WHERE revoked_at IS NOT NULL;

-- How much of the promised time had run, and until when, before the pauses that are remembered one by one.
ALTER TABLE tickets ADD COLUMN sla_counted_until INTEGER;
ALTER TABLE tickets ADD COLUMN sla_counted_ms INTEGER;
