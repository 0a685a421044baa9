//! Calls of AWS and their answers, written after real ones.

mod answers;
mod calls;
mod creation;
mod verification;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::test_support::{ScriptedTransport, open};
use crate::{CloudAdapter, CloudKind};

const SECRET: &str = "canary/secret+access+key/of+the+tests/XY";

fn user() -> Value {
    json!({"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": SECRET})
}

fn role() -> Value {
    json!({
        "access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "secret_access_key": SECRET,
        "role_arn": "arn:aws:iam::123456789012:role/tenant-control",
        "external_id": "ten_1",
    })
}

fn open_aws(transport: &Arc<ScriptedTransport>) -> Box<dyn CloudAdapter> {
    open(CloudKind::Aws, &user(), transport)
}
