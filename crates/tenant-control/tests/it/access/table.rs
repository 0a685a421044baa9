//! How each operation of the document is called with success.

use serde_json::{Value, json};

use crate::workflows;

/// How to call an operation with success.
pub struct Row {
    pub operation: &'static str,
    /// What it is about: a record made for the call.
    pub target: Target,
    /// What its query says when it is about no record.
    pub query: &'static str,
    /// In which `$id` stands for that record.
    pub body: Option<Value>,
    pub status: u16,
    /// Scopes it needs beside its own.
    pub more: &'static [&'static str],
    /// How it is refused when the record is another tenant's.
    pub foreign: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Nothing,
    Key,
    Webhook,
    Delivery,
    Ticket,
    /// What belongs to a ticket, as a list.
    Comments,
    History,
    Workflow,
    Organization,
    User,
    Device,
    /// What became of a device, as a list.
    DeviceHistory,
    CloudProvider,
    Vm,
}

/// What a viewer holds, and so whoever makes one or touches one.
const VIEWER: &[&str] = &[
    "organizations:read",
    "tickets:read",
    "workflows:read",
    "search:read",
    "inventory:read",
    "cloud:read",
    "backup:read",
    "analytics:read",
];

/// A provider whose cloud nobody reaches from a test.
pub fn cloud() -> Value {
    json!({"name": "Made", "kind": "hetzner", "regions": ["fsn1"], "credentials": {"token": "x".repeat(64)}})
}

/// An order for a machine of a provider.
pub fn order(provider: &str) -> Value {
    json!({"provider_id": provider, "name": "made", "region": "fsn1", "size": "cx22", "image": "debian-12"})
}

pub fn table() -> Vec<Row> {
    use Target::{
        CloudProvider, Comments, Delivery, Device, DeviceHistory, History, Key, Nothing, Organization, Ticket, User,
        Vm, Webhook, Workflow,
    };
    let row = |operation, target, body, status| Row {
        operation,
        target,
        query: "",
        body,
        status,
        more: &[],
        foreign: "not_found",
    };
    let hook = json!({"name": "Made", "url": "https://hooks.example.com/in", "events": ["webhook.auto_disabled"]});
    let reading = |row: Row| Row { more: &["webhooks:read"], ..row };
    let key = json!({"name": "Made", "scopes": ["api_keys:write"]});
    let person = json!({"email": "$new@acme.test", "name": "Made", "role": "viewer"});
    let peopled = |row: Row| Row { more: VIEWER, ..row };
    vec![
        row("get_openapi_document", Nothing, None, 200),
        // Nobody's domain: a sign-on that begins is in sso.rs.
        row("begin_sso", Nothing, Some(json!({"domain": "nobody.test"})), 404),
        row("list_api_keys", Nothing, None, 200),
        row("list_api_keys", Key, None, 200),
        row("create_api_key", Nothing, Some(key.clone()), 201),
        row("replace_api_key", Key, Some(key), 200),
        row("replace_api_key", Key, Some(json!({"rotate": {}})), 200),
        row("revoke_api_key", Key, None, 204),
        row("list_webhooks", Nothing, None, 200),
        row("list_webhooks", Webhook, None, 200),
        reading(row("create_webhook", Nothing, Some(hook.clone()), 201)),
        reading(row("replace_webhook", Webhook, Some(hook), 200)),
        reading(row("replace_webhook", Webhook, Some(json!({"rotate_secret": {}})), 200)),
        row("delete_webhook", Webhook, None, 204),
        row("list_deliveries", Nothing, None, 200),
        row("list_deliveries", Delivery, None, 200),
        row("send_deliveries", Webhook, Some(json!({"action": "test", "webhook_id": "$id"})), 202),
        row("send_deliveries", Delivery, Some(json!({"action": "resend", "delivery_id": "$id"})), 202),
        row(
            "send_deliveries",
            Webhook,
            Some(json!({"action": "recover", "webhook_id": "$id", "since": "2026-01-01T00:00:00Z"})),
            202,
        ),
        row("list_events", Nothing, None, 200),
        row("list_tickets", Nothing, None, 200),
        row("list_tickets", Ticket, None, 200),
        row("list_tickets", Comments, None, 200),
        row("list_tickets", History, None, 200),
        row("create_ticket", Nothing, Some(json!({"subject": "Made"})), 201),
        row("change_ticket", Ticket, Some(json!({"status": "open", "comment": {"body": "Seen."}})), 200),
        row("list_workflows", Nothing, None, 200),
        row("list_workflows", Workflow, None, 200),
        row("run_workflow", Nothing, Some(workflows::named("Made")), 201),
        row("change_workflow", Workflow, Some(json!({"name": "Other"})), 200),
        row("change_workflow", Workflow, Some(json!({"enabled": false})), 200),
        row("delete_workflow", Workflow, None, 204),
        Row { query: "?q=made", ..row("search", Nothing, None, 200) },
        row("read_asset_inventory", Nothing, None, 200),
        row("read_asset_inventory", Device, None, 200),
        row("read_asset_inventory", DeviceHistory, None, 200),
        row("list_cloud_providers", Nothing, None, 200),
        row("list_cloud_providers", CloudProvider, None, 200),
        row("create_cloud_provider", Nothing, Some(cloud()), 201),
        row("create_cloud_provider", CloudProvider, Some(json!({"action": "verify", "id": "$id"})), 200),
        row("replace_cloud_provider", CloudProvider, Some(cloud()), 200),
        row("delete_cloud_provider", CloudProvider, None, 204),
        row("list_vms", Nothing, None, 200),
        row("list_vms", Vm, None, 200),
        Row { foreign: "invalid_fields", ..row("provision_vms", CloudProvider, Some(order("$id")), 202) },
        row("get_backup_config", Nothing, None, 200),
        row("replace_backup_config", Nothing, Some(json!({"alert_after_failures": 2})), 200),
        row("list_backup_postures", Nothing, None, 200),
        row("read_tenant_analytics", Nothing, None, 200),
        row("read_platform_analytics", Nothing, None, 200),
        row("list_organizations", Nothing, None, 200),
        row("list_organizations", Organization, None, 200),
        row("create_organization", Nothing, Some(json!({"name": "Made"})), 201),
        row("replace_organization", Organization, Some(json!({"name": "Other"})), 200),
        row("delete_organization", Organization, None, 204),
        row("list_users", Nothing, None, 200),
        row("list_users", User, None, 200),
        peopled(row("create_user", Nothing, Some(person.clone()), 201)),
        peopled(row("replace_user", User, Some(person), 200)),
        peopled(row("disable_user", User, None, 204)),
        row("get_session", Nothing, None, 200),
        row("delete_session", Nothing, None, 204),
        row("list_audit_entries", Nothing, None, 200),
    ]
}
