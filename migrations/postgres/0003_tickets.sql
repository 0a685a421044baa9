-- Organizations, tickets with what belongs to them, and the terms by which tickets are found.

-- The tenant's own customers.
CREATE TABLE organizations (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    slug TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, slug)
);

-- The last number given to a ticket, beside the clock that every write of the tenant holds.
ALTER TABLE tenant_clocks ADD COLUMN ticket_number BIGINT NOT NULL DEFAULT 0;

-- What is promised for tickets of a priority. Without hours the clock runs day and night.
CREATE TABLE sla_targets (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    priority BIGINT NOT NULL,
    first_response_minutes BIGINT NOT NULL,
    resolution_minutes BIGINT NOT NULL,
    hours TEXT COLLATE "C",
    timezone TEXT COLLATE "C",
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, priority)
);

-- Numbers rise with created_at and with id: one order serves for all three. Long texts come last, so that a look at
-- many tickets does not read them.
CREATE TABLE tickets (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    -- 0 is low, 3 is critical.
    priority BIGINT NOT NULL,
    organization_id TEXT COLLATE "C",
    requester_name TEXT COLLATE "C",
    requester_email TEXT COLLATE "C",
    assignee_id TEXT COLLATE "C",
    team TEXT COLLATE "C",
    category TEXT COLLATE "C",
    tags TEXT COLLATE "C" NOT NULL,
    device_ids TEXT COLLATE "C" NOT NULL,
    external_id TEXT COLLATE "C",
    source TEXT COLLATE "C" NOT NULL,
    due_at BIGINT,
    first_response_due_at BIGINT,
    -- From here on less than a fifth of the time is left.
    first_response_risk_at BIGINT,
    first_responded_at BIGINT,
    resolution_due_at BIGINT,
    resolution_risk_at BIGINT,
    -- The clock stands since then: the ticket waits for somebody else, or is done with.
    sla_paused_at BIGINT,
    -- When it stood before: pairs of moments.
    sla_pauses TEXT COLLATE "C" NOT NULL,
    -- What was promised when the ticket got its priority.
    sla_policy TEXT COLLATE "C",
    resolved_at BIGINT,
    closed_at BIGINT,
    comment_count BIGINT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    custom_fields TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C",
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, number)
);
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
    tenant_id TEXT COLLATE "C" NOT NULL,
    term TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, term, number)
);

CREATE TABLE ticket_comments (
    tenant_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    public BOOLEAN NOT NULL,
    author_type TEXT COLLATE "C" NOT NULL,
    author_id TEXT COLLATE "C",
    author_name TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, number, ordinal)
);

-- Every change, under the version that it made.
CREATE TABLE ticket_changes (
    tenant_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    version BIGINT NOT NULL,
    at BIGINT NOT NULL,
    actor_type TEXT COLLATE "C" NOT NULL,
    actor_id TEXT COLLATE "C",
    actor_name TEXT COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    changes TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, number, version)
);

ALTER TABLE organizations ENABLE ROW LEVEL SECURITY;
ALTER TABLE organizations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON organizations USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE sla_targets ENABLE ROW LEVEL SECURITY;
ALTER TABLE sla_targets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON sla_targets USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE tickets ENABLE ROW LEVEL SECURITY;
ALTER TABLE tickets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tickets USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE ticket_terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE ticket_terms FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON ticket_terms USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE ticket_comments ENABLE ROW LEVEL SECURITY;
ALTER TABLE ticket_comments FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON ticket_comments USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE ticket_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE ticket_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON ticket_changes USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
