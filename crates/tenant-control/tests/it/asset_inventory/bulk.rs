//! Very many devices, written straight into the tables.

use kernel::args;

use super::database;
use crate::support::server::START;
use crate::support::{Server, Tenancy};

/// Numbered from 1 as `host-1`; the last part of the id is the number, too. Each changed at a moment of its own before the test
/// began. Every second one is healthy, all others are offline, but for each one in 3,000, which is both.
const DEVICES: &str = "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO devices (tenant_id, id, number, hostname, type, platform, status, health, warranty_status, tags, custom_fields,
        version, created_at, updated_at, sequence)
    SELECT $1, 'dev_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2), i, 'host-' || CAST(i AS TEXT), 'server', 'linux',
        CASE WHEN i % 2 = 1 OR i % 3000 = 2 THEN 'offline' ELSE 'online' END, CASE WHEN i % 2 = 0 THEN 'healthy' ELSE 'unknown' END,
        'unknown', '[]', CAST($3 AS TEXT), 1, $4 - $2 + i, $4 - $2 + i, 0 FROM n";

const TERMS: &str = "INSERT INTO device_terms (tenant_id, term, number)
    SELECT tenant_id, 's:' || status, number FROM devices WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, 'h:' || health, number FROM devices WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, 't:' || type, number FROM devices WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, 'w:host', number FROM devices WHERE tenant_id = $1";

/// As if their hardware addresses were of one maker.
const CARDS: &str = "INSERT INTO device_terms (tenant_id, term, number)
    SELECT tenant_id, 'w:025056', number FROM devices WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, 'w:0250', number FROM devices WHERE tenant_id = $1";

const SOFTWARE: &str = "INSERT INTO device_software (tenant_id, name, number, versions)
    SELECT tenant_id, 'bash', number, '5' FROM devices WHERE tenant_id = $1";

/// So many devices, each with custom fields of about so many bytes.
pub async fn load(server: &Server, tenancy: &Tenancy, count: i64, bytes: usize) {
    // Behind what is loaded, so that those who follow changes see it.
    server.set_clock(tenancy.tenant.id, START).await;
    let custom = serde_json::json!({"text": "x".repeat(bytes)}).to_string();
    let db = database(server, tenancy);
    let load = db.write(async move |tx| {
        tx.exec(DEVICES, args![count, custom, START.as_millis()]).await?;
        tx.exec("UPDATE tenant_clocks SET device_number = $2 WHERE tenant_id = $1", args![count]).await?;
        tx.exec(TERMS, args![]).await
    });
    load.await.expect("the devices are loaded");
}

/// Cards of one maker, `02:50:56`, in all of them.
pub async fn equip(server: &Server, tenancy: &Tenancy) {
    let db = database(server, tenancy);
    db.write(async |tx| tx.exec(CARDS, args![]).await).await.expect("they are equipped");
}

/// Bash 5 on all of them.
pub async fn install(server: &Server, tenancy: &Tenancy) {
    let db = database(server, tenancy);
    db.write(async |tx| tx.exec(SOFTWARE, args![]).await).await.expect("it is installed");
}

/// The number in a device's id.
pub fn number(row: &serde_json::Value) -> i64 {
    super::text(row, "id")[14..].parse().expect("a number")
}
