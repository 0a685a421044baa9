//! The few words that random tickets and questions are made of, so that they meet. `$name` stands for an id that only
//! the run knows.

/// Moments as they are given and as they are shown.
pub const MOMENTS: &[(&str, &str)] = &[
    ("2026-02-01T00:00:00Z", "2026-02-01T00:00:00.000Z"),
    ("2026-02-01T01:00:00+01:00", "2026-02-01T00:00:00.000Z"),
    ("2026-02-01T00:00:00.001Z", "2026-02-01T00:00:00.001Z"),
    ("2025-12-31T23:59:59.999Z", "2025-12-31T23:59:59.999Z"),
];

pub const SUBJECTS: &[&str] = &[
    "Printer on fire",
    "printing: PRINT queue",
    "Mailbox full",
    "VPN-gateway (mail)",
    "Ärger mit der Straße",
    "x",
    "Printer, printer; x",
    "日本 mail 2026",
];

/// Fields that any request may have, as JSON.
pub const FIELDS: &[(&str, &str)] = &[
    ("description", "null"),
    ("description", r#""Third floor.\nLeft.""#),
    ("description", r#""""#),
    ("type", r#""incident""#),
    ("type", r#""change""#),
    ("type", r#""service_request""#),
    ("priority", r#""low""#),
    ("priority", r#""medium""#),
    ("priority", r#""high""#),
    ("priority", r#""critical""#),
    ("status", r#""new""#),
    ("organization_id", r#""$globex""#),
    ("organization_id", r#""$initech""#),
    ("organization_id", "null"),
    ("assignee_id", r#""$admin""#),
    ("assignee_id", r#""$colleague""#),
    ("assignee_id", "null"),
    ("requester", r#"{"name":"Sam"}"#),
    ("requester", r#"{"email":"sam@acme.test"}"#),
    ("requester", r#"{"name":"Kim","email":"kim@acme.test"}"#),
    ("requester", "null"),
    ("team", r#""desk""#),
    ("team", "null"),
    ("category", r#""hardware""#),
    ("category", "null"),
    ("tags", r#"["a"]"#),
    ("tags", r#"["b","a"]"#),
    ("tags", r#"["c","d"]"#),
    ("tags", "[]"),
    ("custom_fields", r#"{"floor":3}"#),
    ("custom_fields", r#"{"floor":"third","room":{"door":1,"key":[1,null]}}"#),
    ("custom_fields", "{}"),
    ("device_ids", "[]"),
    ("external_id", r#""E1""#),
    ("external_id", r#""E2""#),
    ("external_id", r#""E3""#),
    ("external_id", "null"),
    ("due_at", r#""2026-02-01T00:00:00Z""#),
    ("due_at", r#""2026-02-01T01:00:00+01:00""#),
    ("due_at", r#""2026-02-01T00:00:00.001Z""#),
    ("due_at", r#""2025-12-31T23:59:59.999Z""#),
    ("due_at", "null"),
];

/// Fields of a change alone.
pub const CHANGES: &[(&str, &str)] = &[
    ("subject", r#""Mailbox full""#),
    ("subject", r#""Printer on fire""#),
    ("status", r#""open""#),
    ("status", r#""in_progress""#),
    ("status", r#""pending""#),
    ("status", r#""on_hold""#),
    ("status", r#""resolved""#),
    ("status", r#""closed""#),
    ("status", r#""cancelled""#),
    ("status", r#""open""#),
    ("status", r#""resolved""#),
    ("tags", "null"),
    ("custom_fields", "null"),
    ("custom_fields", r#"{"floor":null,"room":{"door":null,"lamp":true}}"#),
    ("device_ids", "null"),
    ("requester", r#"{"name":null}"#),
    ("requester", r#"{"email":null}"#),
    ("comment", r#"{"body":"On my way.","public":true}"#),
    ("comment", r#"{"body":"He is slow.","public":false}"#),
    ("comment", r#"{"body":"Hello"}"#),
];

/// Fields that no request may have, and the pointer at which they are refused.
pub const REFUSED: &[(&str, &str, &str)] = &[
    ("subject", r#""""#, "/subject"),
    ("subject", "5", "/subject"),
    ("subject", "null", "/subject"),
    ("type", r#""outage""#, "/type"),
    ("priority", r#""urgent""#, "/priority"),
    ("status", r#""done""#, "/status"),
    ("status", "7", "/status"),
    ("organization_id", r#""$unknown_organization""#, "/organization_id"),
    ("organization_id", r#""$foreign_organization""#, "/organization_id"),
    ("organization_id", r#""nonsense""#, "/organization_id"),
    ("assignee_id", r#""$unknown_user""#, "/assignee_id"),
    ("assignee_id", r#""$globex""#, "/assignee_id"),
    ("device_ids", r#"["$device"]"#, "/device_ids/0"),
    ("tags", r#"["a",7]"#, "/tags/1"),
    ("tags", r#""a""#, "/tags"),
    ("custom_fields", "[1]", "/custom_fields"),
    ("requester", r#"{"email":"no address"}"#, "/requester/email"),
    ("requester", r#"{"name":"Sam","phone":"1"}"#, "/requester/phone"),
    ("due_at", r#""tomorrow""#, "/due_at"),
    ("number", "7", "/number"),
    ("sla_state", r#""ok""#, "/sla_state"),
    ("nonsense", "true", "/nonsense"),
    ("comment", r#"{"body":""}"#, "/comment/body"),
    ("comment", r#"{"body":"x","public":"yes"}"#, "/comment/public"),
];

/// And in a new ticket.
pub const REFUSED_IN_CREATE: &[(&str, &str, &str)] = &[
    ("status", r#""open""#, "/status"),
    ("status", r#""closed""#, "/status"),
    ("comment", r#"{"body":"Hello"}"#, "/comment"),
];

pub const FILTERS: &[(&str, &str)] = &[
    ("status", "new"),
    ("status", "open,in_progress,pending"),
    ("status", "resolved,closed,cancelled"),
    ("status", "new,resolved"),
    ("priority", "medium"),
    ("priority", "low,critical"),
    ("type", "incident"),
    ("type", "change,task,service_request"),
    ("assignee_id", "$admin"),
    ("assignee_id", "$colleague,$admin"),
    ("assignee_id", "$unknown_user"),
    ("organization_id", "$globex"),
    ("organization_id", "$initech,$globex"),
    ("organization_id", "$foreign_organization"),
    ("device_id", "$device"),
    ("tag", "a"),
    ("tag", "b,c"),
    ("tag", "c,d"),
    ("tag", "nobody"),
    ("external_id", "E1"),
    ("external_id", "E3,E2"),
    ("number", "1"),
    ("number", "7,2,3"),
    ("number", "999"),
    ("q", "print"),
    ("q", "P"),
    ("q", "mail"),
    ("q", "PRINTER FI"),
    ("q", "gate vpn"),
    ("q", "straße är"),
    ("q", "rinter"),
    ("q", "日"),
];

pub const SORTS: &[&str] =
    &["created_at", "-created_at", "updated_at", "-updated_at", "priority", "-priority", "due_at", "-due_at"];

/// Questions that are refused, and with which code.
pub const REFUSED_QUERIES: &[(&str, &str)] = &[
    ("status=done", "invalid_parameter"),
    ("priority=low,", "invalid_parameter"),
    ("number=0", "invalid_parameter"),
    ("updated_since=yesterday", "invalid_parameter"),
    ("limit=0", "invalid_parameter"),
    ("limit=201", "invalid_parameter"),
    ("sort=subject", "invalid_parameter"),
    ("tag=a&tag=b", "invalid_parameter"),
    ("subject=x", "unknown_parameter"),
    ("cursor=x", "invalid_cursor"),
];
