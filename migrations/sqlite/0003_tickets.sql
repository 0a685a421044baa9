-- Organizations, tickets with what belongs to them, and the terms by which tickets are found.

-- The tenant's own customers.
CREATE TABLE organizations (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, slug)
) STRICT;

-- The last number given to a ticket, beside the clock that every write of the tenant holds.
ALTER TABLE tenant_clocks ADD COLUMN ticket_number INTEGER NOT NULL DEFAULT 0;

-- What is promised for tickets of a priority. Without hours the clock runs day and night.
CREATE TABLE sla_targets (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    priority INTEGER NOT NULL,
    first_response_minutes INTEGER NOT NULL,
    resolution_minutes INTEGER NOT NULL,
    hours TEXT,
    timezone TEXT,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, priority)
) STRICT;

-- Numbers rise with created_at and with id: one order serves for all three. Long texts come last, so that a look at
-- many tickets does not read them.
CREATE TABLE tickets (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    subject TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    -- 0 is low, 3 is critical.
    priority INTEGER NOT NULL,
    organization_id TEXT,
    requester_name TEXT,
    requester_email TEXT,
    assignee_id TEXT,
    team TEXT,
    category TEXT,
    tags TEXT NOT NULL,
    device_ids TEXT NOT NULL,
    external_id TEXT,
    source TEXT NOT NULL,
    due_at INTEGER,
    first_response_due_at INTEGER,
    -- From here on less than a fifth of the time is left.
    first_response_risk_at INTEGER,
    first_responded_at INTEGER,
    resolution_due_at INTEGER,
    resolution_risk_at INTEGER,
    -- The clock stands since then: the ticket waits for somebody else, or is done with.
    sla_paused_at INTEGER,
    -- When it stood before: pairs of moments.
    sla_pauses TEXT NOT NULL,
    -- What was promised when the ticket got its priority.
    sla_policy TEXT,
    resolved_at INTEGER,
    closed_at INTEGER,
    comment_count INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    custom_fields TEXT NOT NULL,
    description TEXT,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, number)
) STRICT;
CREATE UNIQUE INDEX tickets_by_external_id ON tickets (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX tickets_by_update ON tickets (tenant_id, updated_at, number);
CREATE INDEX tickets_by_priority ON tickets (tenant_id, priority, number);
CREATE INDEX tickets_by_due_date ON tickets (tenant_id, due_at, number);
-- What is not done is little of what there has been, and what people sort.
CREATE INDEX tickets_live_by_update ON tickets (tenant_id, updated_at, number)
    WHERE status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');
CREATE INDEX tickets_live_by_priority ON tickets (tenant_id, priority, number)
    WHERE status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');
CREATE INDEX tickets_live_by_due_date ON tickets (tenant_id, due_at, number)
    WHERE status IN ('new', 'open', 'in_progress', 'pending', 'on_hold');

-- One row for each thing a ticket can be found by: its status, type, tags, the words of its subject and so on.
CREATE TABLE ticket_terms (
    tenant_id TEXT NOT NULL,
    term TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, term, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE ticket_comments (
    tenant_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    id TEXT NOT NULL,
    public INTEGER NOT NULL,
    author_type TEXT NOT NULL,
    author_id TEXT,
    author_name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (tenant_id, number, ordinal)
) STRICT;

-- Every change, under the version that it made.
CREATE TABLE ticket_changes (
    tenant_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    version INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT,
    actor_name TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    changes TEXT NOT NULL,
    PRIMARY KEY (tenant_id, number, version)
) STRICT;
