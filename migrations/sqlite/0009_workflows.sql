-- Workflows, their runs, and what they stand on: durable steps and followers of events.

-- Work of which every step is noted: what it does inside the platform and that it is done are one transaction.
CREATE TABLE steps (
    tenant_id TEXT NOT NULL,
    -- Of the lane on which it is done, and the lane's key.
    kind TEXT NOT NULL,
    lane TEXT NOT NULL,
    -- Whose step it is, and its name there.
    owner_id TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    -- Attempts that were noted; whoever acts names the one that it saw.
    attempt INTEGER NOT NULL,
    -- Of those, the ones since it was last begun anew by hand.
    tries INTEGER NOT NULL,
    -- Somebody must look at it then; null while it waits for its owner alone, and when it is done.
    next_at INTEGER,
    -- When its turn came.
    ready_at INTEGER NOT NULL,
    deadline_at INTEGER,
    started_at INTEGER,
    ended_at INTEGER,
    input TEXT,
    output TEXT,
    error TEXT,
    attempts TEXT NOT NULL,
    PRIMARY KEY (tenant_id, kind, owner_id, name)
) STRICT;
CREATE INDEX steps_due ON steps (tenant_id, kind, lane, next_at, owner_id, name) WHERE next_at IS NOT NULL;

-- How far somebody has read who follows events behind their commits.
CREATE TABLE followers (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;

-- Of the run that caused the event; what it sets off counts on from there.
ALTER TABLE events ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;

CREATE TABLE workflows (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    -- The one in force.
    revision INTEGER NOT NULL,
    -- When the schedule of an enabled one fires next.
    next_run_at INTEGER,
    -- Deleted, and its runs are still to be ended.
    ends_runs INTEGER NOT NULL DEFAULT 0,
    deleted_at INTEGER,
    created_by_type TEXT NOT NULL,
    created_by_id TEXT,
    created_by_name TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX workflows_live ON workflows (tenant_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX workflows_ending ON workflows (tenant_id, id) WHERE ends_runs;
CREATE INDEX workflows_scheduled ON workflows (tenant_id, next_run_at, id) WHERE next_run_at IS NOT NULL;

-- What a workflow was at a time. Never changed: runs keep theirs.
CREATE TABLE workflow_revisions (
    tenant_id TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    -- The name, what it starts on, and its steps; values of headers are masked.
    definition TEXT NOT NULL,
    -- Those values by step and name, sealed for this revision.
    headers BLOB NOT NULL,
    -- Whose authority its runs have.
    saved_by_type TEXT NOT NULL,
    saved_by_id TEXT,
    saved_by_name TEXT NOT NULL,
    saved_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, workflow_id, revision),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id)
) STRICT;

-- Which events start a workflow: a kind, `<family>.*` or `*`. Of enabled ones alone.
CREATE TABLE workflow_triggers (
    tenant_id TEXT NOT NULL,
    pattern TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    -- Events up to this one were before it was enabled.
    after_sequence INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, pattern, workflow_id),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workflow_triggers_by_workflow ON workflow_triggers (tenant_id, workflow_id);

CREATE TABLE workflow_runs (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    workflow_name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    status TEXT NOT NULL,
    dry_run INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    -- event, schedule or manual.
    trigger_type TEXT NOT NULL,
    event_sequence INTEGER,
    event_id TEXT,
    scheduled_for INTEGER,
    late INTEGER NOT NULL,
    started_by_type TEXT,
    started_by_id TEXT,
    started_by_name TEXT,
    input TEXT NOT NULL,
    error TEXT,
    deadline_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id)
) STRICT;
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
