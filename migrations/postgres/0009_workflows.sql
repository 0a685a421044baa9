-- Workflows, their runs, and what they stand on: durable steps and followers of events.

-- Work of which every step is noted: what it does inside the platform and that it is done are one transaction.
CREATE TABLE steps (
    tenant_id TEXT COLLATE "C" NOT NULL,
    -- Of the lane on which it is done, and the lane's key.
    kind TEXT COLLATE "C" NOT NULL,
    lane TEXT COLLATE "C" NOT NULL,
    -- Whose step it is, and its name there.
    owner_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    -- Attempts that were noted; whoever acts names the one that it saw.
    attempt BIGINT NOT NULL,
    -- Of those, the ones since it was last begun anew by hand.
    tries BIGINT NOT NULL,
    -- Somebody must look at it then; null while it waits for its owner alone, and when it is done.
    next_at BIGINT,
    -- When its turn came.
    ready_at BIGINT NOT NULL,
    deadline_at BIGINT,
    started_at BIGINT,
    ended_at BIGINT,
    input TEXT COLLATE "C",
    output TEXT COLLATE "C",
    error TEXT COLLATE "C",
    attempts TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, kind, owner_id, name)
);
CREATE INDEX steps_due ON steps (tenant_id, kind, lane, next_at, owner_id, name) WHERE next_at IS NOT NULL;

-- How far somebody has read who follows events behind their commits.
CREATE TABLE followers (
    tenant_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- Of the run that caused the event; what it sets off counts on from there.
ALTER TABLE events ADD COLUMN depth BIGINT NOT NULL DEFAULT 0;

CREATE TABLE workflows (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    enabled BOOLEAN NOT NULL,
    -- The one in force.
    revision BIGINT NOT NULL,
    -- When the schedule of an enabled one fires next.
    next_run_at BIGINT,
    -- Deleted, and its runs are still to be ended.
    ends_runs BOOLEAN NOT NULL DEFAULT FALSE,
    deleted_at BIGINT,
    created_by_type TEXT COLLATE "C" NOT NULL,
    created_by_id TEXT COLLATE "C",
    created_by_name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX workflows_live ON workflows (tenant_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX workflows_ending ON workflows (tenant_id, id) WHERE ends_runs;
CREATE INDEX workflows_scheduled ON workflows (tenant_id, next_run_at, id) WHERE next_run_at IS NOT NULL;

-- What a workflow was at a time. Never changed: runs keep theirs.
CREATE TABLE workflow_revisions (
    tenant_id TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    -- The name, what it starts on, and its steps; values of headers are masked.
    definition TEXT COLLATE "C" NOT NULL,
    -- Those values by step and name, sealed for this revision.
    headers BYTEA NOT NULL,
    -- Whose authority its runs have.
    saved_by_type TEXT COLLATE "C" NOT NULL,
    saved_by_id TEXT COLLATE "C",
    saved_by_name TEXT COLLATE "C" NOT NULL,
    saved_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, workflow_id, revision),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id)
);

-- Which events start a workflow: a kind, `<family>.*` or `*`. Of enabled ones alone.
CREATE TABLE workflow_triggers (
    tenant_id TEXT COLLATE "C" NOT NULL,
    pattern TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    -- Events up to this one were before it was enabled.
    after_sequence BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, pattern, workflow_id),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id)
);
CREATE INDEX workflow_triggers_by_workflow ON workflow_triggers (tenant_id, workflow_id);

CREATE TABLE workflow_runs (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    workflow_name TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    dry_run BOOLEAN NOT NULL,
    depth BIGINT NOT NULL,
    -- event, schedule or manual.
    trigger_type TEXT COLLATE "C" NOT NULL,
    event_sequence BIGINT,
    event_id TEXT COLLATE "C",
    scheduled_for BIGINT,
    late BOOLEAN NOT NULL,
    started_by_type TEXT COLLATE "C",
    started_by_id TEXT COLLATE "C",
    started_by_name TEXT COLLATE "C",
    input TEXT COLLATE "C" NOT NULL,
    error TEXT COLLATE "C",
    deadline_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id)
);
CREATE INDEX workflow_runs_by_workflow ON workflow_runs (tenant_id, workflow_id, id);
CREATE INDEX workflow_runs_by_status ON workflow_runs (tenant_id, status, id);
CREATE INDEX workflow_runs_by_both ON workflow_runs (tenant_id, workflow_id, status, id);
-- Those that wait for their turn.
CREATE INDEX workflow_runs_queued ON workflow_runs (tenant_id, id) WHERE status = 'pending';
CREATE INDEX workflow_runs_by_deadline ON workflow_runs (tenant_id, deadline_at, id) WHERE ended_at IS NULL;
CREATE INDEX workflow_runs_by_end ON workflow_runs (tenant_id, ended_at, id) WHERE ended_at IS NOT NULL;
-- One run of an event and of a moment of the schedule, whatever else goes wrong.
CREATE UNIQUE INDEX workflow_runs_by_event ON workflow_runs (tenant_id, workflow_id, event_sequence)
    WHERE event_sequence IS NOT NULL;
CREATE UNIQUE INDEX workflow_runs_by_schedule ON workflow_runs (tenant_id, workflow_id, scheduled_for)
    WHERE scheduled_for IS NOT NULL;

ALTER TABLE steps ENABLE ROW LEVEL SECURITY;
ALTER TABLE steps FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON steps USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE followers ENABLE ROW LEVEL SECURITY;
ALTER TABLE followers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON followers USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE workflows ENABLE ROW LEVEL SECURITY;
ALTER TABLE workflows FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON workflows USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE workflow_revisions ENABLE ROW LEVEL SECURITY;
ALTER TABLE workflow_revisions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON workflow_revisions USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE workflow_triggers ENABLE ROW LEVEL SECURITY;
ALTER TABLE workflow_triggers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON workflow_triggers USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE workflow_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE workflow_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON workflow_runs USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
