-- Whether something that the follower wants has happened behind its position. Unknown of those that are there, so they look.
ALTER TABLE followers ADD COLUMN behind BOOLEAN NOT NULL DEFAULT TRUE;

-- Which revisions of a workflow have runs: the others, but the one in force, are kept by nobody.
CREATE INDEX workflow_runs_by_revision ON workflow_runs (tenant_id, workflow_id, revision);

-- Where a chain of runs that set each other off began: an event's own sequence, or the run's where somebody or a schedule
-- began it. None for what no run has caused.
ALTER TABLE events ADD COLUMN root BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workflow_runs ADD COLUMN root BIGINT NOT NULL DEFAULT 0;
CREATE INDEX workflow_runs_by_root ON workflow_runs (tenant_id, root) WHERE depth > 1;
