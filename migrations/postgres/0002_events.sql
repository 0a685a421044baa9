-- Events, webhook endpoints, their deliveries, and the lanes on which work is leased to one node at a time.

-- What happened, in the order of commit. `body` is the very text that is delivered, so every attempt sends the same.
CREATE TABLE events (
    tenant_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    family TEXT COLLATE "C" NOT NULL,
    record_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, sequence)
);
CREATE INDEX events_by_time ON events (tenant_id, at, sequence);
CREATE INDEX events_by_age ON events (at);

CREATE TABLE webhooks (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id TEXT COLLATE "C" NOT NULL,
    -- Four digits that end the ids of this endpoint's deliveries; the rest of each is the event's id.
    code TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    url TEXT COLLATE "C" NOT NULL,
    events TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    disabled_reason TEXT COLLATE "C",
    header_names TEXT COLLATE "C" NOT NULL,
    -- The values by name, sealed for the version of the record that set them.
    headers BYTEA NOT NULL,
    headers_version BIGINT NOT NULL,
    rate_limit_per_second BIGINT,
    ordered BOOLEAN NOT NULL,
    -- Rises when the endpoint is switched off; what was waiting then is of an older generation and not sent any more.
    generation BIGINT NOT NULL,
    deleted_at BIGINT,
    created_by_type TEXT COLLATE "C" NOT NULL,
    created_by_id TEXT COLLATE "C",
    created_by_name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, code)
);
CREATE INDEX webhooks_live ON webhooks (tenant_id, created_at, id) WHERE deleted_at IS NULL;

-- One row per secret that signs: an endpoint has two during the overlap of a rotation.
CREATE TABLE webhook_secrets (
    tenant_id TEXT COLLATE "C" NOT NULL,
    webhook_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    secret BYTEA NOT NULL,
    valid_until BIGINT,
    PRIMARY KEY (tenant_id, webhook_id, number),
    FOREIGN KEY (tenant_id, webhook_id) REFERENCES webhooks (tenant_id, id)
);

-- A kind, `<family>.*` or `*`. Found by what an event is, in the transaction that publishes it.
CREATE TABLE webhook_subscriptions (
    tenant_id TEXT COLLATE "C" NOT NULL,
    pattern TEXT COLLATE "C" NOT NULL,
    webhook_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, pattern, webhook_id),
    FOREIGN KEY (tenant_id, webhook_id) REFERENCES webhooks (tenant_id, id)
);
CREATE INDEX webhook_subscriptions_by_webhook ON webhook_subscriptions (tenant_id, webhook_id);

-- What the sender observes of an endpoint. Apart from the endpoint, so that noting it never waits for a change of it.
CREATE TABLE webhook_states (
    tenant_id TEXT COLLATE "C" NOT NULL,
    webhook_id TEXT COLLATE "C" NOT NULL,
    last_success_at BIGINT,
    last_failure_at BIGINT,
    consecutive_failures BIGINT NOT NULL,
    failing_since BIGINT,
    -- Nothing is sent before this, and why.
    paused_until BIGINT,
    paused_reason TEXT COLLATE "C",
    -- Up to which generation deliveries are noted as skipped.
    drained BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, webhook_id)
);

-- One row for every event and endpoint: what became of it.
CREATE TABLE deliveries (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    webhook_id TEXT COLLATE "C" NOT NULL,
    event_sequence BIGINT NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    -- The record whose order counts; null where the endpoint does not ask for order.
    record_id TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    skipped_reason TEXT COLLATE "C",
    generation BIGINT NOT NULL,
    -- Null: nothing to do, or held until an earlier event of the same record is done with.
    next_attempt_at BIGINT,
    -- Since it was last made pending; the schedule counts them.
    tries BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    succeeded_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX deliveries_by_webhook ON deliveries (tenant_id, webhook_id, id);
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, status, id) WHERE status <> 'succeeded';
CREATE INDEX deliveries_due ON deliveries (tenant_id, webhook_id, next_attempt_at, event_sequence) WHERE status = 'pending';
CREATE INDEX deliveries_under_way ON deliveries (tenant_id, webhook_id) WHERE status = 'delivering';
CREATE INDEX deliveries_in_order ON deliveries (tenant_id, webhook_id, record_id, event_sequence)
    WHERE record_id IS NOT NULL AND status IN ('pending', 'delivering');

CREATE TABLE delivery_attempts (
    tenant_id TEXT COLLATE "C" NOT NULL,
    delivery_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    status_code BIGINT,
    error TEXT COLLATE "C",
    response_body TEXT COLLATE "C",
    address TEXT COLLATE "C",
    duration_ms BIGINT NOT NULL,
    timings TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, delivery_id, number)
);

-- An endpoint's recovery under way, or its last one.
CREATE TABLE webhook_recoveries (
    tenant_id TEXT COLLATE "C" NOT NULL,
    webhook_id TEXT COLLATE "C" NOT NULL,
    since BIGINT NOT NULL,
    until BIGINT NOT NULL,
    -- Events up to here have been looked at, of those up to there.
    position BIGINT NOT NULL,
    through BIGINT NOT NULL,
    examined BIGINT NOT NULL,
    queued BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (tenant_id, webhook_id)
);

-- What one node works on at a time. The token rises with every lease: a node that lost its lease writes nothing more.
CREATE TABLE lanes (
    kind TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    due_at BIGINT,
    -- New work alone does not make it due before this.
    not_before BIGINT,
    token BIGINT NOT NULL,
    node TEXT COLLATE "C",
    leased_until BIGINT,
    PRIMARY KEY (kind, tenant_id, key)
);
CREATE INDEX lanes_due ON lanes (kind, due_at);

-- Whether the coming end of a key has been told.
ALTER TABLE api_keys ADD COLUMN expiry_announced BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX api_keys_to_announce ON api_keys (expires_at) WHERE revoked_at IS NULL AND NOT expiry_announced;

ALTER TABLE events ENABLE ROW LEVEL SECURITY;
ALTER TABLE events FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON events USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhooks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhooks USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE webhook_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhook_secrets USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE webhook_subscriptions ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_subscriptions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhook_subscriptions USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE webhook_states ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_states FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhook_states USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE deliveries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON deliveries USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE delivery_attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE delivery_attempts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON delivery_attempts USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE webhook_recoveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_recoveries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhook_recoveries USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
ALTER TABLE lanes ENABLE ROW LEVEL SECURITY;
ALTER TABLE lanes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON lanes USING (tenant_id = current_setting('tc.tenant', true) OR current_setting('tc.tenant', true) = '*');
