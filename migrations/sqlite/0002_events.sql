-- Events, webhook endpoints, their deliveries, and the lanes on which work is leased to one node at a time.

-- What happened, in the order of commit. `body` is the very text that is delivered, so every attempt sends the same.
CREATE TABLE events (
    tenant_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    family TEXT NOT NULL,
    record_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (tenant_id, sequence)
) STRICT;
CREATE INDEX events_by_time ON events (tenant_id, at, sequence);
CREATE INDEX events_by_age ON events (at);

CREATE TABLE webhooks (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    -- Four digits that end the ids of this endpoint's deliveries; the rest of each is the event's id.
    code TEXT NOT NULL,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    status TEXT NOT NULL,
    disabled_reason TEXT,
    header_names TEXT NOT NULL,
    -- The values by name, sealed for the version of the record that set them.
    headers BLOB NOT NULL,
    headers_version INTEGER NOT NULL,
    rate_limit_per_second INTEGER,
    ordered INTEGER NOT NULL,
    -- Rises when the endpoint is switched off; what was waiting then is of an older generation and not sent any more.
    generation INTEGER NOT NULL,
    deleted_at INTEGER,
    created_by_type TEXT NOT NULL,
    created_by_id TEXT,
    created_by_name TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, code)
) STRICT;
CREATE INDEX webhooks_live ON webhooks (tenant_id, created_at, id) WHERE deleted_at IS NULL;

-- One row per secret that signs: an endpoint has two during the overlap of a rotation.
CREATE TABLE webhook_secrets (
    tenant_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    secret BLOB NOT NULL,
    valid_until INTEGER,
    PRIMARY KEY (tenant_id, webhook_id, number),
    FOREIGN KEY (tenant_id, webhook_id) REFERENCES webhooks (tenant_id, id)
) STRICT, WITHOUT ROWID;

-- A kind, `<family>.*` or `*`. Found by what an event is, in the transaction that publishes it.
CREATE TABLE webhook_subscriptions (
    tenant_id TEXT NOT NULL,
    pattern TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, pattern, webhook_id),
    FOREIGN KEY (tenant_id, webhook_id) REFERENCES webhooks (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_subscriptions_by_webhook ON webhook_subscriptions (tenant_id, webhook_id);

-- What the sender observes of an endpoint. Apart from the endpoint, so that noting it never waits for a change of it.
CREATE TABLE webhook_states (
    tenant_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    last_success_at INTEGER,
    last_failure_at INTEGER,
    consecutive_failures INTEGER NOT NULL,
    failing_since INTEGER,
    -- Nothing is sent before this, and why.
    paused_until INTEGER,
    paused_reason TEXT,
    -- Up to which generation deliveries are noted as skipped.
    drained INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, webhook_id)
) STRICT, WITHOUT ROWID;

-- One row for every event and endpoint: what became of it.
CREATE TABLE deliveries (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    event_sequence INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    -- The record whose order counts; null where the endpoint does not ask for order.
    record_id TEXT,
    status TEXT NOT NULL,
    skipped_reason TEXT,
    generation INTEGER NOT NULL,
    -- Null: nothing to do, or held until an earlier event of the same record is done with.
    next_attempt_at INTEGER,
    -- Since it was last made pending; the schedule counts them.
    tries INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    succeeded_at INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT;
CREATE INDEX deliveries_by_webhook ON deliveries (tenant_id, webhook_id, id);
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, status, id) WHERE status <> 'succeeded';
CREATE INDEX deliveries_due ON deliveries (tenant_id, webhook_id, next_attempt_at, event_sequence) WHERE status = 'pending';
CREATE INDEX deliveries_under_way ON deliveries (tenant_id, webhook_id) WHERE status = 'delivering';
CREATE INDEX deliveries_in_order ON deliveries (tenant_id, webhook_id, record_id, event_sequence)
    WHERE record_id IS NOT NULL AND status IN ('pending', 'delivering');

CREATE TABLE delivery_attempts (
    tenant_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    status_code INTEGER,
    error TEXT,
    response_body TEXT,
    address TEXT,
    duration_ms INTEGER NOT NULL,
    timings TEXT NOT NULL,
    PRIMARY KEY (tenant_id, delivery_id, number)
) STRICT, WITHOUT ROWID;

-- An endpoint's recovery under way, or its last one.
CREATE TABLE webhook_recoveries (
    tenant_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    -- Events up to here have been looked at, of those up to there.
    position INTEGER NOT NULL,
    through INTEGER NOT NULL,
    examined INTEGER NOT NULL,
    queued INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (tenant_id, webhook_id)
) STRICT, WITHOUT ROWID;

-- What one node works on at a time. The token rises with every lease: a node that lost its lease writes nothing more.
CREATE TABLE lanes (
    kind TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    key TEXT NOT NULL,
    due_at INTEGER,
    -- New work alone does not make it due before this.
    not_before INTEGER,
    token INTEGER NOT NULL,
    node TEXT,
    leased_until INTEGER,
    PRIMARY KEY (kind, tenant_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX lanes_due ON lanes (kind, due_at);

-- Whether the coming end of a key has been told.
ALTER TABLE api_keys ADD COLUMN expiry_announced INTEGER NOT NULL DEFAULT 0;
CREATE INDEX api_keys_to_announce ON api_keys (expires_at) WHERE revoked_at IS NULL AND NOT expiry_announced;
