use serde_json::json;

use super::*;

const SECRET: &str = "canary/secret+of+forty+characters/EXAMPLE";

fn aws() -> Value {
    json!({
        "access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "secret_access_key": SECRET,
        "role_arn": "arn:aws:iam::123456789012:role/ops/tenant-control",
        "external_id": "ten_1:a",
    })
}

#[track_caller]
fn refused(kind: CloudKind, value: &Value) -> Vec<(String, &'static str)> {
    let errors = CloudCredentials::parse(kind, value).unwrap_err();
    assert!(!format!("{errors:?}").contains("canary"), "{errors:?}");
    errors.into_iter().map(|error| (error.field, error.code)).collect()
}

#[test]
fn credentials_read_back_and_never_print() {
    for (kind, value) in [
        (CloudKind::Aws, aws()),
        (CloudKind::Aws, json!({"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": SECRET})),
        (CloudKind::Hetzner, json!({"token": "canary-token-0123456789"})),
        (CloudKind::Digitalocean, json!({"token": "canary-token-0123456789"})),
        (CloudKind::Libvirt, json!({})),
    ] {
        let credentials = CloudCredentials::parse(kind, &value).unwrap();
        assert_eq!(credentials.to_json(), value);
        assert_eq!(credentials.kind(), kind);
        assert_eq!(format!("{credentials:?}"), "[redacted]");
        assert!(!credentials.hint().contains("canary"), "{}", credentials.hint());
    }
}

#[test]
fn a_hint_names_the_key_and_the_role() {
    let hint = CloudCredentials::parse(CloudKind::Aws, &aws()).unwrap().hint();
    assert_eq!(hint, "AKIA…MPLE, role arn:aws:iam::123456789012:role/ops/tenant-control, external id ten_1:a");
    let token = |text: &str| CloudCredentials::parse(CloudKind::Hetzner, &json!({ "token": text })).unwrap().hint();
    assert_eq!(token("0123456789abcdef"), "…cdef");
    assert_eq!(token("short"), "…");
}

#[test]
fn every_bad_field_is_reported_at_once() {
    let value = json!({"access_key_id": "akia", "role_arn": 5, "external_id": "", "secret_key": "canary"});
    let expected = [
        ("access_key_id", "invalid_text"),
        ("secret_access_key", "required"),
        ("role_arn", "invalid_type"),
        ("external_id", "invalid_text"),
        ("secret_key", "unknown_field"),
    ];
    let errors = refused(CloudKind::Aws, &value);
    assert_eq!(errors, expected.map(|(field, code)| (field.to_owned(), code)));
}

#[test]
fn secrets_fit_into_a_header() {
    for text in ["", "canary token", "canary\r\nx: y", "canary\u{e9}", "\u{0}canary"] {
        assert_eq!(refused(CloudKind::Hetzner, &json!({ "token": text })), [("token".to_owned(), "invalid_text")]);
    }
    let long = "x".repeat(1_025);
    assert_eq!(refused(CloudKind::Hetzner, &json!({ "token": long })), [("token".to_owned(), "invalid_text")]);
    assert_eq!(refused(CloudKind::Hetzner, &json!({ "token": null })), [("token".to_owned(), "required")]);
    assert_eq!(refused(CloudKind::Hetzner, &json!("canary")), [(String::new(), "invalid_type")]);
    assert_eq!(refused(CloudKind::Hetzner, &json!([])), [(String::new(), "invalid_type")]);
}

#[test]
fn roles_have_the_shape_of_an_arn() {
    for (role_arn, is_good) in [
        ("arn:aws:iam::123456789012:role/x", true),
        ("arn:aws-cn:iam::123456789012:role/a/b/c", true),
        ("arn:aws-us-gov:iam::123456789012:role/x", true),
        ("arn:aws-eusc:iam::123456789012:role/x", true),
        ("arn:aws-iso:iam::123456789012:role/x", false),
        ("arn:aws:iam::12345678901:role/x", false),
        ("arn:aws:iam::123456789012:user/x", false),
        ("arn:aws:iam:us-east-1:123456789012:role/x", false),
        ("arn:aws:iam::123456789012:role/", false),
        ("arn:evil:iam::123456789012:role/x", false),
        ("arn:aws:iam::123456789012:role/x y", false),
    ] {
        let mut value = aws();
        value["role_arn"] = json!(role_arn);
        assert_eq!(CloudCredentials::parse(CloudKind::Aws, &value).is_ok(), is_good, "{role_arn}");
    }
}

#[test]
fn of_a_host_of_the_operators_nothing_can_be_chosen() {
    assert_eq!(refused(CloudKind::Libvirt, &json!({"owner": "ten_2"})), [("owner".to_owned(), "unknown_field")]);
    let credentials = CloudCredentials::parse(CloudKind::Libvirt, &json!({})).unwrap().with_owner("ten_1");
    assert_eq!(credentials.to_json(), json!({}));
    assert_eq!(credentials, CloudCredentials::Libvirt { owner: Some("ten_1".to_owned()) });
}

#[test]
fn an_external_id_needs_a_role() {
    let mut value = aws();
    value["role_arn"] = Value::Null;
    assert_eq!(refused(CloudKind::Aws, &value), [("external_id".to_owned(), "is_unused")]);
}
