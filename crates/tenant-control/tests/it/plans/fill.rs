//! What the tables have in them when PostgreSQL is asked for its plans.

use kernel::args;
use kernel::store::{Purpose, Store};

/// Nobody but the test looks at what is in the tables: PostgreSQL does by itself now and then, and might plan for the few rows of
/// one tenant that were there a moment before.
pub async fn leave_unanalyzed(store: &Store, tables: &[&[&'static str]]) {
    let (db, tables) = (store.system(Purpose::Cli), tables.concat());
    let left = db.write(async move |tx| {
        for table in tables {
            tx.exec(&format!("ALTER TABLE {table} SET (autovacuum_enabled = false)"), args![]).await?;
        }
        Ok(())
    });
    left.await.expect("the tables are left alone");
}

/// Rows of many tenants, as few as make a difference to PostgreSQL. All have one actor and one action: where nothing tells
/// entries apart, an index that promises to is of no use to a planner, and still needed.
pub const ROWS: &[&str] = &[
    "INSERT INTO tenants SELECT 'ten_' || n, 's' || n, 'x', 1, 1, 1 FROM generate_series(1, 200) n",
    "INSERT INTO events SELECT 'ten_' || n % 200 + 1, n, 'evt_' || n, 'a.b', 'a', 'r' || n % 100, n, '{}' FROM generate_series(1, 6000) n",
    "INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, record_id, status, generation,
        next_attempt_at, tries, attempts, created_at)
        SELECT 'ten_' || n % 200 + 1, 'dlv_' || n, 'wh_' || n % 600, n, 'evt_' || n, 'a.b', 'r' || n,
            CASE WHEN n % 10 < 2 THEN 'failed' WHEN n % 10 < 8 THEN 'pending' ELSE 'succeeded' END, 1, n, 1, 1, n
        FROM generate_series(1, 6000) n",
    "INSERT INTO delivery_attempts SELECT 'ten_' || n % 200 + 1, 'dlv_' || n, 1, n, 200, NULL, 'ok', NULL, 1, '{}'
        FROM generate_series(1, 6000) n",
    "INSERT INTO audit_entries (tenant_id, id, at, actor_type, actor_id, actor_name, action, target_type, target_id)
        SELECT 'ten_' || n % 200 + 1, 'aud_' || n, n, 'user', 'usr_1', 'x', 'a.b', 't', 'tkt_' || n % 500 FROM generate_series(1, 6000) n",
    "INSERT INTO idempotency_records SELECT 'ten_' || n % 200 + 1, 'usr_1', '/a', 'k' || n, '', 200, '[]', '', n
        FROM generate_series(1, 6000) n",
    "INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, tags, device_ids, source, sla_pauses,
        comment_count, version, created_at, updated_at, custom_fields)
        SELECT 'ten_' || n % 200 + 1, 'tkt_' || n, n, 's', 'incident', CASE WHEN n % 50 = 0 THEN 'open' ELSE 'closed' END, 1, '[]',
            '[]', 'api', '[]', 0, 1, n, n, '{}' FROM generate_series(1, 6000) n",
    "INSERT INTO ticket_terms SELECT 'ten_' || n % 200 + 1, 'w:' || n % 300, n FROM generate_series(1, 6000) n",
    "INSERT INTO ticket_comments (tenant_id, number, ordinal, id, public, author_type, author_name, created_at, size_bytes, body)
        SELECT 'ten_' || n % 200 + 1, n / 5, n, 'cmt_' || n, TRUE, 'user', 'x', n, 1, 'x' FROM generate_series(1, 6000) n",
    "INSERT INTO ticket_changes (tenant_id, number, version, at, actor_type, actor_name, size_bytes, changes)
        SELECT 'ten_' || n % 200 + 1, n / 5, n, n, 'user', 'x', 1, '{}' FROM generate_series(1, 6000) n",
    "INSERT INTO devices (tenant_id, id, number, hostname, type, platform, status, health, organization_id, warranty_status, tags,
        custom_fields, deleted_at, version, created_at, updated_at, sequence)
        SELECT 'ten_' || n % 200 + 1, 'dev_' || n, n, 'x', 'server', 'linux', 'online', 'healthy',
            CASE WHEN n % 3 > 0 THEN 'org_' || n % 500 END, 'unknown', '[]', '{}', CASE WHEN n % 50 = 0 THEN n END, 1, n, n, n
        FROM generate_series(1, 6000) n",
    "INSERT INTO device_parts SELECT 'ten_' || n % 200 + 1, n, '[]', '[]', '[]', '[]', '[]', '[]' FROM generate_series(1, 6000) n",
    "INSERT INTO device_reports (tenant_id, device, last_seen_at, inventory_at, digest, check_at)
        SELECT 'ten_' || n % 200 + 1, n, n, n, 'd' || n, n FROM generate_series(1, 6000) n",
    "INSERT INTO device_identities SELECT 'ten_' || n % 200 + 1, 'i' || n, n, n FROM generate_series(1, 6000) n",
    "INSERT INTO device_terms SELECT 'ten_' || n % 200 + 1, 'w:' || n % 300, n FROM generate_series(1, 6000) n",
    "INSERT INTO device_software SELECT 'ten_' || n % 200 + 1, 's' || n % 300, n, '1' FROM generate_series(1, 6000) n",
    "INSERT INTO device_counts SELECT 'ten_' || n % 200 + 1, '*', 'software', 's' || n, 'S' || n, 1, 0 FROM generate_series(1, 6000) n",
    "INSERT INTO device_software_changes SELECT 'ten_' || n % 200 + 1, n % 8, n, 1, 0, '{}', n FROM generate_series(1, 6000) n",
    "INSERT INTO device_changes (tenant_id, number, version, at, actor_type, actor_name, size_bytes, changes)
        SELECT 'ten_' || n % 200 + 1, n / 5, n, n, 'system', 'x', 1, '{}' FROM generate_series(1, 6000) n",
    "INSERT INTO backup_devices (tenant_id, device_id, organization_id, class, known_since, record, share, findings, severity,
        last_success_at, verified_at, failures, next_at)
        SELECT 'ten_' || n % 200 + 1, 'dev_' || n, 'org_' || n % 500, 'server', n, '{}', '{}', '[]', n % 4, n, n, n % 3, n
        FROM generate_series(1, 6000) n",
    "INSERT INTO backup_runs (tenant_id, id, external_id, device_id, organization_id, job, kind, tool, target, status, is_declared,
        started_at, ended_at, received_at, reasons, outcome)
        SELECT 'ten_' || n % 200 + 1, 'bjr_' || n, 'x' || n, 'dev_' || n % 1000, 'org_' || n % 500, 'x', 'backup', 'restic', 'nas',
            CASE WHEN n % 20 = 0 THEN 'missed' ELSE 'success' END, FALSE, n, n, n, '[]', '{}' FROM generate_series(1, 6000) n",
    "INSERT INTO facts SELECT 'ten_' || n % 200 + 1, n, n, CASE WHEN n % 3 = 0 THEN n END, n, '' FROM generate_series(1, 6000) n",
    "INSERT INTO rollups SELECT 'ten_' || n % 200 + 1, n % 3, 15, n * 900000::bigint, 'm' || n % 7, '', '' FROM generate_series(1, 6000) n",
    "INSERT INTO cohorts SELECT 'ten_' || n % 200 + 1, 1440, n % 100 * 86400000::bigint, CASE WHEN n % 2 = 0 THEN 60 ELSE 1440 END,
        n * 86400000::bigint, ''
        FROM generate_series(1, 6000) n",
    "INSERT INTO workflows (tenant_id, id, name, enabled, revision, created_by_type, created_by_name, version, created_at,
        updated_at) SELECT 'ten_' || n % 200 + 1, 'wf_' || n, 'x', TRUE, 10, 'user', 'x', 1, n, n FROM generate_series(1, 600) n",
    "INSERT INTO workflow_revisions (tenant_id, workflow_id, revision, definition, headers, saved_by_type, saved_by_name, saved_at)
        SELECT 'ten_' || n % 200 + 1, 'wf_' || n, r, '{}', '', 'user', 'x', n
        FROM generate_series(1, 600) n, generate_series(1, 10) r",
    "INSERT INTO workflow_runs (tenant_id, id, workflow_id, workflow_name, revision, status, dry_run, depth, trigger_type,
        event_sequence, late, input, deadline_at, started_at, ended_at, version, created_at, updated_at)
        SELECT 'ten_' || (n + 1) % 200 + 1, 'run_' || n, 'wf_' || n % 600 + 1, 'x', 1,
            CASE WHEN n % 10 = 0 THEN 'running' WHEN n % 10 = 1 THEN 'pending' ELSE 'succeeded' END, FALSE, 0, 'event', n, FALSE,
            '{}', n, n, CASE WHEN n % 10 > 1 THEN n END, 1, n, n FROM generate_series(0, 5999) n",
    "INSERT INTO steps (tenant_id, kind, lane, owner_id, name, state, attempt, tries, next_at, ready_at, attempts)
        SELECT 'ten_' || n % 200 + 1, 'workflow', 'all', 'run_' || n / 2, 'step_' || n % 2,
            CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'succeeded' END, 1, 1, CASE WHEN n % 10 = 0 THEN n END, n, '[]'
        FROM generate_series(1, 6000) n",
    "INSERT INTO cloud_providers (tenant_id, id, name, kind, credentials, credentials_version, credentials_hint, regions, enabled, status,
        created_by_type, version, created_at, updated_at)
        SELECT 'ten_' || n, 'prv_1', 'x', 'aws', '', 1, 'x', '[]', TRUE, 'active', 'user', 1, n, n FROM generate_series(1, 200) n",
    "INSERT INTO vms (tenant_id, id, provider_id, external_id, name, region, size_id, state, raw_state, public_ips, private_ips, tags,
        managed, organization_id, organization_given, operation_id, terminated_at, version, created_at, updated_at, sequence, deleted_at)
        SELECT 'ten_' || n % 200 + 1, 'vm_' || n, 'prv_1', 'i-' || n, 'x', 'eu-' || n % 3, 's', 'running', 'running', '[]', '[]', '{}',
            n % 2 = 0, CASE WHEN n % 3 > 0 THEN 'org_' || n % 500 END, FALSE, CASE WHEN n % 2 = 0 THEN 'op_' || n END,
            CASE WHEN n % 20 = 0 THEN n END, 1, n, n, n, CASE WHEN n % 50 = 0 THEN n END FROM generate_series(1, 6000) n",
    "INSERT INTO vm_operations (tenant_id, id, vm_id, provider_id, region, status, spec, next_at, accepted_at, created_at,
        ended_at) SELECT 'ten_' || n % 200 + 1, 'op_' || n, 'vm_' || n, 'prv_1', 'eu-' || n % 3, 'succeeded', '{}',
            CASE WHEN n % 20 = 0 THEN n END, n, n, CASE WHEN n % 20 > 0 THEN n END FROM generate_series(1, 6000) n",
];
