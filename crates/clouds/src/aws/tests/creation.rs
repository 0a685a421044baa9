use super::answers::{answer_of, error, instance};
use super::open_aws;
use crate::test_support::{ScriptedTransport, answer, failure, lost, now, run, spec};
use crate::{CloudErrorKind, CloudResponse, MachineState};

fn created(instances: &str) -> String {
    answer_of("RunInstances", &format!("<reservationId>r-1</reservationId><instancesSet>{instances}</instancesSet>"))
}

#[test]
fn a_creation_carries_its_operation_as_token_and_tag() {
    let transport = ScriptedTransport::in_order([answer(200, created(&instance("i-9", "pending", None)))]);
    let spec = spec("eu-west-1", "t3.small", "ami-1");
    assert!(!format!("{spec:?}").contains("canary"));
    let machine = run(open_aws(&transport).create_machine(&spec, now())).unwrap().machine;
    assert_eq!((machine.external_id.as_str(), machine.state), ("i-9", MachineState::Provisioning));
    assert_eq!(machine.operation_id.as_ref(), Some(&spec.operation_id));
    assert_eq!(machine.tags["env"], "prod");
    let sent = transport.take_sent();
    for (name, value) in [
        ("Action", "RunInstances"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("ClientToken", spec.operation_id.as_str()),
        ("ImageId", "ami-1"),
        ("InstanceType", "t3.small"),
        ("KeyName", "ops"),
        ("UserData", "I2Nsb3VkLWNvbmZpZwpwYXNzd29yZDogY2FuYXJ5"),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", "Name"),
        ("TagSpecification.1.Tag.1.Value", "web-1"),
        ("TagSpecification.1.Tag.2.Key", "tenant-control:operation"),
        ("TagSpecification.1.Tag.2.Value", spec.operation_id.as_str()),
        ("TagSpecification.1.Tag.3.Key", "env"),
        ("TagSpecification.2.ResourceType", "volume"),
        ("TagSpecification.2.Tag.1.Key", "Name"),
        ("TagSpecification.2.Tag.2.Key", "tenant-control:operation"),
        ("TagSpecification.2.Tag.2.Value", spec.operation_id.as_str()),
        ("TagSpecification.2.Tag.3.Key", "env"),
        ("MetadataOptions.HttpTokens", "required"),
    ] {
        assert_eq!(sent[0].field(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(sent[0].field("DryRun"), None);
}

#[test]
fn a_repeated_creation_is_the_same_request() {
    let body = || answer(200, created(&instance("i-9", "pending", None)));
    let transport = ScriptedTransport::in_order([body(), body()]);
    let aws = open_aws(&transport);
    let spec = spec("eu-west-1", "t3.small", "ami-1");
    for _ in 0..2 {
        run(aws.create_machine(&spec, now())).unwrap();
    }
    let sent = transport.take_sent();
    assert_eq!(sent[0].body, sent[1].body);
    assert!(aws.creates_once());
}

#[test]
fn an_answer_that_cannot_be_understood_leaves_open_whether_there_is_a_machine() {
    let whole = created(&instance("i-9", "pending", None));
    for answer in [
        lost(true),
        answer(200, &whole[..whole.len() - 1]),
        answer(200, created("")),
        answer(200, created(&format!("{}{}", instance("i-1", "pending", None), instance("i-2", "pending", None)))),
        answer(200, "<html/>"),
        answer(500, error("InternalError", "An internal error has occurred")),
        answer(503, error("Unavailable", "The service is unavailable")),
        answer(502, "Bad Gateway"),
    ] {
        let transport = ScriptedTransport::in_order([answer]);
        let error = failure(run(open_aws(&transport).create_machine(&spec("eu-west-1", "t3.small", "ami-1"), now())));
        assert_eq!(error.kind, CloudErrorKind::Ambiguous, "{error}");
    }
}

#[test]
fn a_clock_that_is_minutes_off_is_not_a_refusal_of_the_credentials() {
    let body = error("AuthFailure", "AWS was not able to validate the provided access credentials");
    // The request is signed at 03:04:05.
    for (date, kind) in [
        (Some("Fri, 02 Jan 2026 03:10:00 GMT"), CloudErrorKind::Unavailable),
        (Some("Fri, 02 Jan 2026 02:58:00 GMT"), CloudErrorKind::Unavailable),
        (Some("Fri, 02 Jan 2026 03:04:35 GMT"), CloudErrorKind::Auth),
        (Some("some day"), CloudErrorKind::Auth),
        (None, CloudErrorKind::Auth),
    ] {
        let headers = date.into_iter().map(|date| ("date".to_owned(), date.to_owned())).collect();
        let answer = CloudResponse { status: 401, headers, body: body.clone().into_bytes() };
        let transport = ScriptedTransport::in_order([Ok(answer)]);
        let error = failure(run(open_aws(&transport).create_machine(&spec("eu-west-1", "t3.small", "ami-1"), now())));
        assert_eq!(error.kind, kind, "{date:?}: {error}");
        assert_eq!(error.detail.contains("Set the clock"), kind == CloudErrorKind::Unavailable, "{error}");
    }
}

#[test]
fn a_clear_refusal_is_clear() {
    for (answer, kind) in [
        (lost(false), CloudErrorKind::Unavailable),
        (answer(500, error("InsufficientInstanceCapacity", "no capacity")), CloudErrorKind::Capacity),
        (answer(503, error("RequestLimitExceeded", "slow down")), CloudErrorKind::RateLimited),
        (answer(400, error("IdempotentParameterMismatch", "other arguments")), CloudErrorKind::Conflict),
        (answer(400, error("InvalidAMIID.NotFound", "no such image")), CloudErrorKind::Invalid),
        (answer(401, error("AuthFailure", "Not authorized for images: [ami-1]")), CloudErrorKind::Invalid),
        (
            answer(403, error("AccessDenied", "User: x is not authorized to perform: ec2:RunInstances")),
            CloudErrorKind::Permission,
        ),
    ] {
        let transport = ScriptedTransport::in_order([answer]);
        let error = failure(run(open_aws(&transport).create_machine(&spec("eu-west-1", "t3.small", "ami-1"), now())));
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[test]
fn what_aws_would_refuse_is_refused_before() {
    let transport = ScriptedTransport::in_order([]);
    let aws = open_aws(&transport);
    let mut spec = spec("eu west", "t3.small", "");
    spec.ssh_keys.push("second".to_owned());
    spec.user_data = Some("x".repeat(16_385));
    spec.tags.insert("aws:x".to_owned(), String::new());
    spec.tags.insert("Name".to_owned(), String::new());
    spec.tags.insert("tenant-control:operation".to_owned(), String::new());
    let fields: Vec<&str> = crate::CloudKind::Aws.check_spec(&spec).iter().map(|error| error.field).collect();
    assert_eq!(fields, ["image", "tags", "user_data", "region", "ssh_keys", "tags", "tags"]);
    let error = failure(run(aws.create_machine(&spec, now())));
    assert_eq!(error.kind, CloudErrorKind::Invalid);
    assert!(error.detail.contains("AWS accepts one key pair"), "{error}");
}
